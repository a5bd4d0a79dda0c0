"""The composition root: the only place that names concrete providers, stores and clocks."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from autoscaler.clock import Clock, SystemClock
from autoscaler.clouds import cloud_of, open_providers, open_storage
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.controller import Controller
from autoscaler.controller.farewell import give_everything_back, outlive
from autoscaler.controller.forecasts import Forecasts
from autoscaler.controller.foresight import Foresights
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import Conflict
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.training import Engine
from autoscaler.lighthouse.host import LighthouseHost, LighthouseSettings
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy, require_ground
from autoscaler.service.app import Rooms, create_app
from autoscaler.service.assignments import Assignments, TrainingTimes
from autoscaler.service.authentication import OWNER, Authentication, load_key
from autoscaler.service.checkpoints import TrialCheckpoints
from autoscaler.service.files import Bundles, Logs, TrialFiles
from autoscaler.service.job_secrets import AllowedSecrets
from autoscaler.service.nodes import Nodes
from autoscaler.service.results import Results
from autoscaler.service.stored import StoredFiles
from autoscaler.service.stored_logs import StoredLogs
from autoscaler.service.studies import Studies
from autoscaler.service.submissions import Submissions
from autoscaler.service.views import Views
from autoscaler.state_directory import hold_state, let_owner_in, port_before
from autoscaler.store.claim import Claim, claim_store
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from autoscaler.supervision import GIVE_BACK_SECONDS
from providers.local.settings import LocalSettings

_log = logging.getLogger(__name__)

# After a tick the loop rests four times as long as the tick took, but no longer than this.
_LONGEST_REST_SECONDS = 0.2
_REST = 4.0
_WORKERS = 8
_END_SECONDS = 2  # of a study's own controller, at whose end somebody may wait for news still


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How one controller is to run.

    Attributes:
        state: the directory that holds all it must not forget, but for a store elsewhere.
        store_url: of another store than the SQLite file in `state`.
        host, port: where the API listens; port 0 takes a free one, the same at every restart:
            agents look for the controller where it was.
        policy: the name of the policy that plans.
        tick_seconds: the longest time between two ticks.
        heartbeat_seconds: how often agents speak up.
        lease_seconds: after how long without a controller an agent ends its instance.
        maximum_bundle_bytes: the largest working directory that is taken, packed.
        engine: how instances of new jobs train together; None takes the best that is here.
        parent: the process that it runs for: without that it ends, with all that it holds.
        local: what of this machine is sold; None for nothing.
        pools: where pools in clouds are described (`autoscaler.clouds`).
        secret_directories, secret_variables: files and variables that jobs may name as secrets.
    """

    state: Path
    store_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8470
    policy: str = "marginal"
    tick_seconds: float = 1.0
    heartbeat_seconds: float = 1.0
    lease_seconds: float = 1800.0
    maximum_bundle_bytes: int = 1 << 30
    engine: Engine | None = None
    parent: int | None = None
    controller: ControllerSettings = ControllerSettings()
    times: TrainingTimes = TrainingTimes()
    local: LocalSettings | None = field(default_factory=LocalSettings)
    pools: tuple[str, ...] = ()
    secret_directories: tuple[Path, ...] = ()
    secret_variables: tuple[str, ...] = ()


class Deployment:
    """A controller with its store, provider and API, put together but not running."""

    def __init__(self, settings: ServeSettings, url: str, clock: Clock) -> None:
        state = settings.state
        self._settings = settings
        self._clock = clock
        policy = _planner(settings.policy)
        self.wake = threading.Event()
        self.store: Store = open_store(_store_url(settings))
        self.authentication = Authentication(self.store, load_key(state / "secret.key"), clock)
        self.workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="castor-call")
        self.termination_workers = ThreadPoolExecutor(
            _WORKERS, thread_name_prefix="castor-termination"
        )
        self.controller = self._controller(policy, url)
        self.app = self._app()

    def tick(self) -> None:
        """One turn of the loop, now."""
        self.controller.tick(self._clock.now())

    def run_loop(
        self, stopped: threading.Event, is_claimed: Callable[[], bool] = lambda: True
    ) -> None:
        """Tick until `stopped`, when there is news and regularly.

        `is_claimed` is asked before each tick: False ends the loop.
        """
        while not stopped.is_set():
            self.wake.clear()
            begun_seconds = self._clock.monotonic()
            try:
                if not is_claimed():
                    return
                self.tick()
            except Exception:  # the loop's edge: the next tick makes good what this one missed
                _log.exception("a tick failed")
            took_seconds = self._clock.monotonic() - begun_seconds
            self._clock.sleep(min(_REST * took_seconds, _LONGEST_REST_SECONDS))
            self.wake.wait(self._settings.tick_seconds)

    def close(self) -> None:
        """Let calls that are under way end, and close the store. Instances go on."""
        for workers in (self.workers, self.termination_workers):
            workers.shutdown(wait=True, cancel_futures=True)
        self.store.close()

    def _controller(self, policy: Policy, url: str) -> Controller:
        settings = self._settings
        providers = open_providers(
            settings.local,
            settings.pools,
            settings.state,
            settings.host,
            self.store.settings.controller_id(),
            self._clock,
        )
        self._verifiers = {name: provider.identity for name, provider in providers.items()}
        # Without one all instances see the directory of jobs.
        self.storage = open_storage(settings.pools, settings.state, self._clock)
        parts = ControllerParts(
            store=self.store,
            providers=providers,
            policy=policy,
            lighthouses=LighthouseHost(
                settings.state / "lighthouses",
                settings.host if settings.pools else "127.0.0.1",
                self._clock,
                LighthouseSettings(engine=settings.engine),
            ),
            workers=self.workers,
            termination_workers=self.termination_workers,
            clock=self._clock,
            user_data=lambda held: self._user_data(held, url),
            on_outcome=self.wake.set,
            on_hand_over=lambda instance: self._nodes.call(instance),
            on_capacity=self.authentication.issue,
            files_network=None if self.storage is None else self.storage.network,
        )
        return assemble(parts, settings.controller)

    def _user_data(self, held: HeldInstance, url: str) -> str:
        """What an instance finds at its start; the token in it serves once, and not for long."""
        self.authentication.issue(held)
        return json.dumps(
            {
                "controller": url,
                "join_token": self.authentication.join_token(held),
                "instance": held.id,
            }
        )

    def _app(self) -> FastAPI:
        settings, store, status = self._settings, self.store, self.controller.status
        bundles = Bundles(settings.state / "bundles", settings.maximum_bundle_bytes)
        stored = None if self.storage is None else StoredFiles(self.storage, bundles)
        assignments = Assignments(
            settings.state / "jobs",
            self.authentication,
            settings.times,
            _allowed_secrets(settings, os.environ),
            stored,
        )
        results = Results(assignments, stored)
        release = version("castor-autoscaler")
        self._nodes = Nodes(
            store,
            self.authentication,
            assignments,
            status,
            self.wake.set,
            self._clock,
            settings.heartbeat_seconds,
            settings.lease_seconds,
            settings.controller.drain_seconds,
            verifiers=self._verifiers,
        )
        rooms = Rooms(
            store=store,
            authentication=self.authentication,
            submissions=Submissions(
                *(store, bundles, assignments, status, self.wake.set, self._clock, results),
                settings.controller.job_usd,
            ),
            nodes=self._nodes,
            studies=Studies(
                store,
                TrialFiles(settings.state / "files"),
                self.wake.set,
                self._clock,
                status,
                TrialCheckpoints(store, assignments, stored),
                settings.controller.study_usd,
            ),
            views=Views(store, status, assignments, release),
            bundles=bundles,
            logs=self._logs(),
            results=results,
            fixed_sizes=Forecasts(store, status, self._clock).of,
            foresee=Foresights(
                store,
                status,
                _planner(settings.policy),
                settings.controller.replan_seconds,
                self._clock,
            ).of,
            clock=self._clock,
        )
        return create_app(rooms, release)

    def _logs(self) -> Logs:
        directory = self._settings.state / "logs"
        if self.storage is None:
            return Logs(directory, self._clock)
        return StoredLogs(directory, self.storage.jobs, self.store.jobs.get, self._clock)


def _allowed_secrets(settings: ServeSettings, environment: Mapping[str, str]) -> AllowedSecrets:
    """Return what jobs of this controller may name as secrets."""
    variables = {
        name: environment[name] for name in settings.secret_variables if name in environment
    }
    return AllowedSecrets(settings.state, settings.secret_directories, variables)


def _planner(name: str) -> Policy:
    """The policy of that name; one that buys instances, which is all there is here.

    Raises:
        SpecError: there is none, or it shares out a pool.
    """
    policy = create_policy(name)
    require_ground(name, policy, is_pool=False)
    return policy


def serve(settings: ServeSettings) -> None:
    """Run a controller until it is told to stop. Its instances and jobs go on without it.

    Raises:
        Conflict: another controller runs on this state or this store, or the port is in use.
        StoreError: the store can't be opened.
    """
    _check_start(settings)
    clock = SystemClock()
    with (
        hold_state(settings.state),
        claim_store(_store_url(settings), settings.state) as claim,
        listening(settings) as listener,
    ):
        url = f"http://{settings.host}:{listener.getsockname()[1]}"
        deployment = Deployment(settings, url, clock)
        deployment.authentication.set_person(OWNER, let_owner_in(settings.state, url))
        server = uvicorn.Server(
            uvicorn.Config(
                deployment.app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=None if settings.parent is None else _END_SECONDS,
            )
        )
        stopped = threading.Event()
        loop = threading.Thread(
            target=deployment.run_loop,
            args=(stopped, lambda: _is_claimed(claim, server)),
            name="castor-loop",
            daemon=True,
        )
        loop.start()
        _log.info("listening on %s, state in %s", url, settings.state)
        if settings.parent is not None:
            threading.Thread(
                target=_end_with, args=(settings.parent, deployment, server), daemon=True
            ).start()
        try:
            server.run(sockets=[listener])
        finally:
            stopped.set()
            deployment.wake.set()
            loop.join()
            deployment.close()


def _check_start(settings: ServeSettings) -> None:
    """Check what would refuse the start, before a new state directory is made.

    Raises:
        SpecError: the policy or a file of pools can't be used.
        Conflict: the state directory is new, and the port is in use.
    """
    _planner(settings.policy)
    for source in settings.pools:
        cloud_of(source)
    if not settings.state.exists():
        with listening(settings):
            pass


def _store_url(settings: ServeSettings) -> str:
    return settings.store_url or f"sqlite:///{settings.state / 'castor.db'}"


def _is_claimed(claim: Claim, server: uvicorn.Server) -> bool:
    """Return whether the store is still this controller's; end the server if it is not."""
    try:
        claim.check()
    except Conflict as error:
        _log.critical("%s; this controller ends", error)
        server.should_exit = True
        return False
    return True


def _end_with(parent: int, deployment: Deployment, server: uvicorn.Server) -> None:
    """End the controller in order when the process that it runs for has died."""
    clock = SystemClock()
    outlive(lambda: os.getppid() == parent, clock)
    _log.warning("process %d, which this controller runs for, has died: its jobs end", parent)
    try:
        give_everything_back(deployment.store, deployment.wake.set, clock, GIVE_BACK_SECONDS)
    finally:
        server.should_exit = True


@contextlib.contextmanager
def listening(settings: ServeSettings) -> Iterator[socket.socket]:
    """Yield a socket bound to the host and the port of the settings.

    Raises:
        Conflict: the address can't be listened on.
    """
    host, port = settings.host, settings.port
    # Where the protocol is not named, asyncio leaves Nagle's algorithm on: answers are 40 ms late.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        before = port_before(settings.state) if port == 0 else None
        try:
            listener.bind((host, before or port))
        except OSError as error:
            raise Conflict(
                f"{host}:{before or port} can't be listened on ({error.strerror}): "
                "choose another --port"
            ) from None
        yield listener
