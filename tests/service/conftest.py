from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import uvicorn
from fastapi import FastAPI

from autoscaler.clock import SystemClock
from autoscaler.controller.predict.live_jobs import LiveJobs
from autoscaler.controller.predict.what_if import WhatIfs
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.storage import StorageGrant
from autoscaler.notifications.outbox import Notifications
from autoscaler.notifications.targets import Target
from autoscaler.objects import Objects, always
from autoscaler.policies.registry import create_policy
from autoscaler.service.access.authentication import Authentication, load_key
from autoscaler.service.access.browser_sessions import BrowserSessions
from autoscaler.service.access.gate import AccessGate
from autoscaler.service.access.job_secrets import AllowedSecrets
from autoscaler.service.access.logins import LoginProvider, Logins
from autoscaler.service.access.oidc_settings import OidcSettings
from autoscaler.service.app import ServiceDependencies, create_app
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.quotas import bundle_quota, study_quota
from autoscaler.service.files.stored import StoredFiles
from autoscaler.service.files.stored_logs import StoredLogs
from autoscaler.service.files.uploads import Bundles, TrialFiles
from autoscaler.service.instances.assignments import Assignments, TrainingTimes
from autoscaler.service.instances.heartbeats import HeartbeatReceiver
from autoscaler.service.instances.nodes import Nodes
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.jobs.focus_export import FocusExport
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.submissions import Submissions
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages import costs, fleet
from autoscaler.service.pages.events import Changes
from autoscaler.service.studies.checkpoints import TrialCheckpoints
from autoscaler.service.studies.studies import Studies
from autoscaler.wire.client import Client
from autoscaler.wire.node_client import NodeClient
from providers.identity import IdentityVerifier
from providers.storage import JobStorage
from tests.controller.world import World
from tests.service.identity import SETTINGS, ScriptedProvider

TOKEN = "the owner's token"
_COMPLETE_SECONDS = 60.0
# URL that pages of studies link to, in applications that are made from now on.
OPTUNA_DASHBOARD: str | None = None


@dataclass
class Api:
    """HTTP API over a world, served on a port."""

    world: World
    url: str
    authentication: Authentication
    directory: Path
    storage: FolderStorage | None = None
    woken: threading.Event = field(default_factory=threading.Event)
    verifiers: dict[str, IdentityVerifier | None] = field(default_factory=dict)
    token: str = TOKEN
    provider: ScriptedProvider = field(default_factory=ScriptedProvider)
    changes: Changes = field(default_factory=Changes)

    def log_in_through(
        self, settings: OidcSettings | None, provider: LoginProvider | None = None
    ) -> None:
        """Let people log in through a provider, the scripted one if None, from now on."""
        gate = AccessGate(self.authentication, self.world.store, self.world.clock)
        logins = Logins(gate, self.url, settings, provider or self.provider)
        _Present.rooms = replace(_Present.rooms, logins=logins)

    def pages_at(self, url: str) -> None:
        """Let browsers reach the pages at an address from now on."""
        gate = AccessGate(self.authentication, self.world.store, self.world.clock)
        _Present.rooms = replace(_Present.rooms, sessions=BrowserSessions(gate, url))

    def notify(self, targets: Sequence[Target]) -> Notifications:
        """Send notices to these targets from now on; return the notifications, not started."""
        world = self.world
        status, clock = world.controller.status, world.clock
        notifications = Notifications(world.store, status, targets, self.url, clock)
        _Present.rooms = replace(_Present.rooms, notifications=notifications)
        return notifications

    def limit_uploads(self, person_bytes: int, study_bytes: int) -> None:
        """Bound the bundles of each person and the files of each study from now on."""
        bundles, files, rooms = (
            self.directory / "bundles",
            self.directory / "files",
            _Present.rooms,
        )
        quota = bundle_quota(bundles, self.world.store.owners, person_bytes)
        _Present.rooms = replace(rooms, bundles=Bundles(bundles, 1000, quota=quota))
        rooms.studies._files = TrialFiles(files, 1000, quota=study_quota(files, study_bytes))

    @property
    def client(self) -> Client:
        return Client(self.url, self.token)

    @property
    def heartbeats(self) -> HeartbeatReceiver:
        """The receiver of heartbeats behind the API."""
        return _Present.rooms.heartbeats

    def stranger(self, token: str) -> Client:
        return Client(self.url, token)

    def node(self, token: str | None = None) -> NodeClient:
        return NodeClient(self.url, token)


class FolderStorage(JobStorage):
    """Storage in a directory; `trouble` is the error for every grant."""

    def __init__(self, directory: Path) -> None:
        self._place = f"file://{directory}"
        self.trouble: ProviderError | None = None
        self.granted: list[tuple[str, str | None]] = []

    def _objects(self, name: str) -> Objects:
        place = f"{self._place}/{name}"
        return Objects(place, always(StorageGrant(place)))

    @property
    def jobs(self) -> Objects:
        return self._objects("jobs")

    @property
    def bundles(self) -> Objects:
        return self._objects("bundles")

    @property
    def network(self) -> str:
        return ""

    def grant(self, owner: str, bundle: str | None = None) -> StorageGrant:
        if self.trouble is not None:
            raise self.trouble
        self.granted.append((owner, bundle))
        archive = None if bundle is None else f"{self.bundles.place}/{bundle}"
        return StorageGrant(self.place(owner), {}, {"token": "hush"}, 1e10, archive)


class _Present:
    """Dependency of the running test, for the one application that all tests share.

    The creation of an application takes much longer than a request.
    """

    rooms: ServiceDependencies

    def __init__(self, room: str) -> None:
        self._room = room

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_Present.rooms, self._room), name)

    def __call__(self, *arguments: Any) -> Any:
        return getattr(_Present.rooms, self._room)(*arguments)


@cache
def application() -> FastAPI:
    rooms: dict[str, Any] = {
        room.name: _Present(room.name) for room in fields(ServiceDependencies)
    }
    rooms["optuna_dashboard"] = OPTUNA_DASHBOARD
    return create_app(ServiceDependencies(**rooms), "0.1.0")


def _rooms(world: World, authentication: Authentication, api: Api) -> ServiceDependencies:
    store, status, clock = world.store, world.controller.status, world.clock
    directory, wake = api.directory, api.woken.set
    bundles = Bundles(directory / "bundles", 1000)
    stored = None if api.storage is None else StoredFiles(api.storage, bundles)
    allowed = directory / "allowed"
    allowed.mkdir(exist_ok=True)
    secrets = AllowedSecrets(directory / "state", [allowed], {"HF_TOKEN": "hidden-value"})
    assignments = Assignments(directory / "jobs", authentication, TrainingTimes(), secrets, stored)
    results = Results(assignments, stored)
    logs = directory / "logs"
    nodes = Nodes(
        *(store, authentication, assignments, status, wake, clock, 1.0, 60.0, 90.0),
        verifiers=api.verifiers,
    )
    live = LiveJobs(store, status, 60.0, clock, create_policy("marginal"))
    views = Views(store, status, assignments, "0.1.0")
    return ServiceDependencies(
        store=store,
        authentication=authentication,
        logins=Logins(AccessGate(authentication, store, clock), api.url),
        sessions=BrowserSessions(AccessGate(authentication, store, clock), api.url),
        submissions=Submissions(
            *(store, bundles, assignments, status, wake, clock, results),
            world.settings.job_usd,
        ),
        nodes=nodes,
        heartbeats=HeartbeatReceiver(store, authentication, nodes, clock, 1.0),
        studies=Studies(
            store,
            TrialFiles(directory / "files", 1000),
            wake,
            clock,
            status,
            TrialCheckpoints(store, assignments, stored),
            world.settings.study_usd,
        ),
        views=views,
        receipts=Receipts(store, status),
        focus_export=FocusExport(store, status, views.stored_costs),
        bundles=bundles,
        logs=(
            Logs(logs, clock)
            if api.storage is None
            else StoredLogs(logs, api.storage.jobs, store.jobs.get, clock)
        ),
        results=results,
        budgets=SharedBudgets(
            *(store, world.controller.budget_standings, lambda: status.budget_plans, wake, clock)
        ),
        fixed_sizes=lambda job: (),
        what_if=WhatIfs(store, status, create_policy("marginal"), 60.0, clock).of,
        outlooks=Outlooks(store, live, clock),
        metrics=lambda accept: (b"castor_leader 1\n", "text/plain"),
        status=status,
        changes=api.changes,
        notifications=Notifications(store, status, (), api.url, clock),
        clock=clock,
    )


@contextmanager
def served(
    world: World,
    directory: Path,
    storage: FolderStorage | None = None,
    completes_pages: bool = True,
) -> Iterator[Api]:
    """Yield the API over a world; its `woken` is set when the controller should run.

    Pages wait for all that is computed beside them, unless `completes_pages` is false: benchmarks
    measure the product's own waits.
    """
    world.tick(1)
    authentication = Authentication(world.store, load_key(directory / "secret.key"), world.clock)
    authentication.people.set_owner(TOKEN)
    api = Api(world, "", authentication, directory, storage)
    _Present.rooms = _rooms(world, authentication, api)
    config = uvicorn.Config(application(), port=0, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        SystemClock().sleep(0.01)
    api.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    api.log_in_through(SETTINGS)
    api.pages_at(api.url)
    try:
        with _complete_pages() if completes_pages else nullcontext():
            yield api
    finally:
        api.changes.close_threadsafe()
        server.should_exit = True
        thread.join()
        world.store.close()


@contextmanager
def _complete_pages() -> Iterator[None]:
    """Let pages wait for all that is computed beside them, however busy the machine is."""
    with (
        mock.patch.object(costs, "_LONGEST_WAIT_SECONDS", _COMPLETE_SECONDS),
        mock.patch.object(fleet, "_FIRST_WAIT_SECONDS", _COMPLETE_SECONDS),
    ):
        yield


@pytest.fixture
def api(tmp_path: Path, template: Path) -> Iterator[Api]:
    with served(World(tmp_path, template=template), tmp_path) as api:
        yield api


@pytest.fixture
def stored_api(tmp_path: Path, template: Path) -> Iterator[Api]:
    """Yield the API of a deployment whose jobs keep their files in storage."""
    storage = FolderStorage(tmp_path / "storage")
    with served(World(tmp_path, template=template), tmp_path, storage) as api:
        yield api
