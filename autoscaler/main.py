"""Composition root of the controller, which chooses its providers, stores and clock."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI

from autoscaler.clock import Clock, SystemClock
from autoscaler.clouds import cloud_of, open_providers, open_storage
from autoscaler.control_loop import ControlLoop, Pauses, StoreTest
from autoscaler.controller.act.shutdown import terminate_all, wait_for_exit
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.controller import Controller, TickReport
from autoscaler.controller.predict.forecasts import Forecasts
from autoscaler.controller.predict.live_jobs import LiveJobs
from autoscaler.controller.predict.what_if import WhatIfs
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import ThreadWorkers
from autoscaler.domain.errors import StoreError
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.training import Engine
from autoscaler.http_server import (
    HttpServer,
    bound_socket,
    collect_rarely,
    permit_connections,
    postponed_sigterm,
)
from autoscaler.lead import Lead, check_follower
from autoscaler.lighthouse.host import LighthouseHost, LighthouseSettings
from autoscaler.loop_watch import LoopWatch
from autoscaler.notifications.outbox import Notifications
from autoscaler.notifications.targets import Target
from autoscaler.notifications.watch import leader_notice
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy, require_ground
from autoscaler.service.access.authentication import Authentication, load_key
from autoscaler.service.access.browser_sessions import BrowserSessions, open_sessions
from autoscaler.service.access.job_secrets import AllowedSecrets
from autoscaler.service.access.logins import OidcSettings, open_logins, require_provider_client
from autoscaler.service.access.request_limits import RequestLimits
from autoscaler.service.access.shared_secrets import require_same_key, require_shared_secrets
from autoscaler.service.app import ServiceDependencies, create_app
from autoscaler.service.files.job_log_limit import stored_limit
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.retention import FileRetention
from autoscaler.service.files.stored import StoredFiles
from autoscaler.service.files.stored_logs import StoredLogs
from autoscaler.service.files.uploads import Bundles, TrialFiles
from autoscaler.service.following import FollowerGate, LeaderAddress
from autoscaler.service.health import Health, HealthGate
from autoscaler.service.instances.assignments import Assignments, TrainingTimes
from autoscaler.service.instances.heartbeats import HeartbeatReceiver
from autoscaler.service.instances.nodes import Nodes
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.submissions import Submissions
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.events import Changes
from autoscaler.service.request_meter import RequestMeter
from autoscaler.service.studies.checkpoints import TrialCheckpoints
from autoscaler.service.studies.studies import Studies
from autoscaler.state_directory import hold_state, let_owner_in, owner_token, store_url_of
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.events import Event
from autoscaler.store.sql.file_lock import hold_database, process_name
from autoscaler.store.sql.leadership import LEASE_SECONDS, LeaseCandidate
from autoscaler.store.store import Store
from autoscaler.supervision import GIVE_BACK_SECONDS
from autoscaler.telemetry.meters import MeteredPolicy, MeteredProvider, Meters
from autoscaler.telemetry.metrics_page import MetricSources, MetricsPage
from autoscaler.telemetry.traces import open_traces, require_traces
from autoscaler.tls import TlsFiles, certificate_end_seconds, keep_self_signed
from providers.local.settings import LocalSettings
from providers.plugin import ControllerContext

_log = logging.getLogger(__name__)

_WORKERS = 8
_END_SECONDS = 2  # limit for open requests and messages to people when a controller ends


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Options of a controller process.

    Attributes:
        state: the state directory: all persistent state, except the store if it is elsewhere.
        store_url: the URL of the store; None for the SQLite file in `state`.
        host, port: the address at which the API listens. Port 0 selects a free port at the first
            start and the same port at each restart, because agents keep using it.
        policy: the name of the planning policy.
        tick_seconds: the longest time between two ticks.
        heartbeat_seconds: the time between two heartbeats of an agent.
        lease_seconds: an agent without contact to a controller ends its instance after this time.
        maximum_bundle_bytes: the size limit of a packed working directory.
        engine: the communication engine of new jobs; None selects the best one available.
        parent: the id of the parent process. When it dies, all jobs stop, all instances are
            terminated and the controller ends. None: no parent.
        follows: wait for the lead of a PostgreSQL store that another controller leads.
        public_url: the URL of the API for instances and for requests to followers; None for
            host and port.
        tls: certificate and key of the API; None for HTTP without encryption.
        store_lease_seconds: a leader that does not renew its lease of a PostgreSQL store for this
            long is replaced.
        replaces_key: whether this controller may have another signing key than the one before.
        local: the devices of this machine to offer; None for none.
        pools: sources of pools in clouds (`autoscaler.clouds`).
        secret_directories: directories with files that jobs may use as secrets.
        secret_variables: environment variables that jobs may use as secrets.
        oidc: the identity provider that people log in through; None for none.
        metrics_jobs: most jobs with series of their own in `/metrics`.
        notify: the targets of notices to people.
        traces: the URL of the receiver of traces; None for the one in OpenTelemetry's variables.
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
    follows: bool = False
    public_url: str | None = None
    tls: TlsFiles | None = None
    store_lease_seconds: float = LEASE_SECONDS
    replaces_key: bool = False
    controller: ControllerSettings = ControllerSettings()
    times: TrainingTimes = TrainingTimes()
    local: LocalSettings | None = field(default_factory=LocalSettings)
    pools: tuple[str, ...] = ()
    secret_directories: tuple[Path, ...] = ()
    secret_variables: tuple[str, ...] = ()
    oidc: OidcSettings | None = None
    metrics_jobs: int = 1_000
    notify: tuple[Target, ...] = ()
    traces: str | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts at which clients and instances reach the API."""
        public_host = urlsplit(self.public_url or "").hostname
        return (self.host,) if public_host is None else (self.host, public_host)


class Deployment:
    """A controller with its store, providers and API, assembled but not running."""

    def __init__(
        self, settings: ServeSettings, url: str, clock: Clock, lead: Lead | None = None
    ) -> None:
        """Assemble the parts; without `lead`, nothing keeps another process off the store."""
        state = settings.state
        self._settings = settings
        self._clock = clock
        self.meters = Meters(clock)
        self.traces = open_traces(settings.traces, os.environ, version("castor-autoscaler"))
        policy = MeteredPolicy(_planner(settings.policy), self.meters, self.traces.span)
        self.url = url
        self._lead = lead
        self.store: Store = (
            open_store(store_url_of(settings.state, settings.store_url))
            if lead is None
            else lead.store
        )
        self.authentication = Authentication(
            self.store, load_key(state / "secret.key"), clock, settings.lease_seconds
        )
        self.loop = self._loop()
        self.wake = self.loop.wake
        self.workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="castor-lighthouse")
        self.controller = self._controller(policy, url)
        keep_seconds = settings.controller.keep_seconds
        self.notifications = Notifications(
            *(self.store, self.controller.status, settings.notify, url, clock),
            settings.controller.fleet_usd,
        )
        self._file_retention = FileRetention(state, self.store, keep_seconds, clock)
        self.app = self._app()

    def tick(self) -> TickReport:
        """Run one iteration of the control loop."""
        self._file_retention.run_when_due()
        try:
            with self.meters.tick(), self.traces.tick():
                return self.controller.tick(self._clock.now())
        finally:
            self._changes.note()

    def _woke(self) -> None:
        """Wake the loop, whose next tick then follows from the span that is open now."""
        self.traces.woke()
        self.wake.set()

    def run_loop(self, stopped: threading.Event) -> None:
        """Tick until `stopped` is set or the lead is lost. A follower first waits for the lead."""
        long_ticks = threading.Thread(
            target=self.watch.run, args=(stopped,), name="castor-watch", daemon=True
        )
        long_ticks.start()
        lead = self._lead
        if lead is not None and not lead.leads:
            if not lead.wait(stopped, self.watch, self._controller_id):
                return
            self._record_change_of_lead()
        self.notifications.start()
        self.loop.run(stopped, lambda: lead is None or not lead.is_lost)

    def _record_change_of_lead(self) -> None:
        text = f"the controller at {self.url} leads the store now"
        try:
            self.store.events.add(Event(self._clock.now(), "new leader", text, None))
            self.notifications.add(leader_notice(self.url, self._clock.now()))
        except StoreError:
            _log.exception("the change of the lead could not be recorded")

    def health(self) -> Health:
        """Return the health of this controller, from memory."""
        test = self._store_test
        role = "leader" if self._lead is None or self._lead.leads else "follower"
        return Health(role, self.watch.state(), test.error, test.age_seconds())

    def end_polls(self) -> None:
        """End all long polls, because the server ends; call this in its event loop."""
        self._nodes.end_polls()
        self._studies.end_polls()
        self._changes.close()

    def close(self) -> None:
        """Wait for running provider calls and close the store. Instances keep running."""
        self.notifications.stop(_END_SECONDS)
        self.call_workers.close()
        self.workers.shutdown(wait=True, cancel_futures=True)
        self.store.close()
        self.traces.close()

    def _loop(self) -> ControlLoop:
        settings, clock = self._settings, self._clock
        self.watch = LoopWatch(clock, self._record_long_tick)
        self._store_test = StoreTest(
            lambda: self.store.settings.mark("written", f"{clock.now():.0f}"), clock
        )
        pauses = Pauses(settings.tick_seconds, settings.controller.listing_seconds)
        return ControlLoop(
            lambda: self.tick().awaits_end, pauses, clock, self.watch, self._store_test
        )

    def _record_long_tick(self, text: str) -> None:
        self.store.events.add(Event(self._clock.now(), "long tick", text, None))

    def _controller(self, policy: Policy, url: str) -> Controller:
        settings = self._settings
        self._controller_id = self.store.settings.controller_id()
        context = ControllerContext(
            settings.state, settings.host, self._controller_id, self._clock
        )
        providers = open_providers(settings.local, settings.pools, context)
        self.call_workers = ThreadWorkers(providers, ThreadPoolExecutor)
        self._verifiers = {name: provider.identity for name, provider in providers.items()}
        # Without storage, all instances share the directory of jobs.
        self.storage = open_storage(settings.pools, context)
        parts = ControllerParts(
            store=self.store,
            providers={
                name: MeteredProvider(name, provider, self.meters, self.traces.span)
                for name, provider in providers.items()
            },
            policy=policy,
            lighthouses=LighthouseHost(
                settings.state / "lighthouses",
                settings.host if settings.pools else "127.0.0.1",
                self._clock,
                LighthouseSettings(engine=settings.engine),
            ),
            workers=self.workers,
            call_workers=self.call_workers,
            clock=self._clock,
            user_data=lambda held: self._user_data(held, url),
            on_outcome=self._woke,
            on_hand_over=lambda instance: self._nodes.call(instance),
            on_capacity=self.authentication.issue,
            on_console=self._keep_console,
            files_network=None if self.storage is None else self.storage.network,
            span=self.traces.span,
            require_lead=(lambda: None) if self._lead is None else self._lead.require_lease,
        )
        return assemble(parts, settings.controller)

    def _user_data(self, held: HeldInstance, url: str) -> str:
        """Return an instance's user data as JSON.

        The join token in it is short-lived and valid for one join.
        """
        self.authentication.issue(held)
        tls = self._settings.tls
        return json.dumps(
            {
                "controller": url,
                "join_token": self.authentication.join_token(held),
                "instance": held.id,
                **({} if tls is None else {"authority": tls.authority_text()}),
            }
        )

    def _app(self) -> FastAPI:
        settings, store, status = self._settings, self.store, self.controller.status
        bundles = Bundles(settings.state / "bundles", settings.maximum_bundle_bytes)
        stored = None if self.storage is None else StoredFiles(self.storage, bundles)
        secrets = _allowed_secrets(settings, os.environ)
        assignments = Assignments(
            settings.state / "jobs", self.authentication, settings.times, secrets, stored
        )
        results = Results(assignments, stored)
        release = version("castor-autoscaler")
        self._nodes = Nodes(
            store,
            self.authentication,
            assignments,
            status,
            self._woke,
            self._clock,
            settings.heartbeat_seconds,
            settings.lease_seconds,
            settings.controller.drain_seconds,
            verifiers=self._verifiers,
        )
        self._studies = Studies(
            store,
            TrialFiles(settings.state / "files"),
            self._woke,
            self._clock,
            status,
            TrialCheckpoints(store, assignments, stored),
            settings.controller.study_usd,
        )
        self._job_logs = self._logs()
        self._changes = Changes()
        self._receipts = Receipts(store, status)
        dependencies = ServiceDependencies(
            store=store,
            authentication=self.authentication,
            logins=open_logins(settings.oidc, self.url, self.authentication, store, self._clock),
            sessions=self._sessions(),
            submissions=Submissions(
                *(store, bundles, assignments, status, self._woke, self._clock, results),
                settings.controller.job_usd,
            ),
            nodes=self._nodes,
            heartbeats=self._heartbeats(),
            studies=self._studies,
            views=Views(store, status, assignments, release),
            receipts=self._receipts,
            bundles=bundles,
            logs=self._job_logs,
            results=results,
            budgets=SharedBudgets(
                *(store, self.controller.budget_standings, lambda: status.budget_plans),
                *(self.wake.set, self._clock),
            ),
            fixed_sizes=Forecasts(store, status, self._clock).of,
            what_if=WhatIfs(
                *(store, status, _planner(settings.policy)),
                *(settings.controller.replan_seconds, self._clock),
            ).of,
            outlooks=self._outlooks(),
            metrics=self._metrics(release).text,
            status=status,
            changes=self._changes,
            notifications=self.notifications,
            clock=self._clock,
        )
        return create_app(dependencies, release)

    def _outlooks(self) -> Outlooks:
        settings, store, clock = self._settings, self.store, self._clock
        live = LiveJobs(
            *(store, self.controller.status, settings.controller.replan_seconds, clock),
            _planner(settings.policy),
        )
        return Outlooks(store, live, clock)

    def _sessions(self) -> BrowserSessions:
        return open_sessions(self.url, self.authentication, self.store, self._clock)

    def _heartbeats(self) -> HeartbeatReceiver:
        return HeartbeatReceiver(
            *(self.store, self.authentication, self._nodes, self._clock),
            self._settings.heartbeat_seconds,
            *(self.meters.heartbeats, self.traces.span),
        )

    def _metrics(self, release: str) -> MetricsPage:
        settings, tls = self._settings, self._settings.tls
        sources = MetricSources(
            store=self.store,
            status=self.controller.status,
            health=self.health,
            meters=self.meters,
            clock=self._clock,
            version=release,
            fleet_usd=settings.controller.fleet_usd,
            most_jobs=settings.metrics_jobs,
            gpu_uses=self._nodes.gpu_uses,
            billed_seconds=self._receipts.billed_seconds,
            certificate_end_seconds=lambda: None if tls is None else certificate_end_seconds(tls),
        )
        return MetricsPage(sources)

    def _keep_console(self, held: HeldInstance, text: str) -> None:
        """Store the console output of an instance that did not start as its part of the log."""
        heading = f"castor: {held.id} did not start; the end of its console's output:\n"
        offset = self._job_logs.end(held.job, held.id)
        self._job_logs.append(held.job, held.id, offset, f"{heading}{text}\n".encode())

    def _logs(self) -> Logs:
        directory = self._settings.state / "logs"
        limit = stored_limit(self.store, self._clock, self._settings.controller.job_log_bytes)
        if self.storage is None:
            return Logs(directory, self._clock, limit=limit)
        return StoredLogs(directory, self.storage.jobs, self.store.jobs.get, self._clock, limit)


def _allowed_secrets(settings: ServeSettings, environment: Mapping[str, str]) -> AllowedSecrets:
    """Return the secrets that jobs of this controller may use."""
    variables = {
        name: environment[name] for name in settings.secret_variables if name in environment
    }
    return AllowedSecrets(settings.state, settings.secret_directories, variables)


def _planner(name: str) -> Policy:
    """Return the policy of that name.

    Raises:
        SpecError: the name is unknown, or the policy plans for a fixed pool.
    """
    policy = create_policy(name)
    require_ground(name, policy, is_pool=False)
    return policy


def serve(settings: ServeSettings) -> None:
    """Run a controller until it is signalled to stop. Instances and jobs continue without it.

    Raises:
        Conflict: another controller uses this state directory or store, or the port is in use, or
            the state directory has other secrets than the store's controllers.
        NotLeading: another controller has taken the lead of the store over.
        StoreError: the store can't be opened.
        SpecError: the policy, a source of pools or the host can't be used.
    """
    _check_start(settings)
    permit_connections()
    clock = SystemClock()
    store_url = store_url_of(settings.state, settings.store_url)
    with (
        postponed_sigterm() as must_end,
        hold_state(settings.state),
        hold_database(store_url, settings.state),
        bound_socket(settings.state, settings.host, settings.port) as listener,
    ):
        if settings.tls is not None:
            keep_self_signed(settings.tls, settings.hosts, clock.now(), settings.follows)
        scheme = "http" if settings.tls is None else "https"
        own_url = f"{scheme}://{settings.host}:{listener.getsockname()[1]}"
        url = settings.public_url or own_url
        lead = Lead(
            store_url, LeaseCandidate(process_name(), url), settings.store_lease_seconds, clock
        )
        try:
            lead.begin(settings.follows)
            deployment = Deployment(settings, url, clock, lead)
            _share_secrets(settings, deployment, lead, url)
            collect_rarely()
            _run(settings, deployment, lead, listener, must_end)
        finally:
            lead.end()
    lead.require_not_lost()


def _share_secrets(settings: ServeSettings, deployment: Deployment, lead: Lead, url: str) -> None:
    """Check the secrets of this controller; a leader stores the hashes of the first ones."""
    key = load_key(settings.state / "secret.key")
    store, people = deployment.store, deployment.authentication.people
    if lead.leads:
        require_same_key(store.settings, key, settings.state, settings.replaces_key)
    else:
        token = owner_token(settings.state)
        require_shared_secrets(store.settings, people, key, token, settings.state)
    authority = None if settings.tls is None else settings.tls.authority
    token = let_owner_in(settings.state, url, authority)
    if lead.leads:
        people.set_owner(token)


def _run(
    settings: ServeSettings,
    deployment: Deployment,
    lead: Lead,
    listener: socket.socket,
    must_end: Callable[[], bool],
) -> None:
    """Serve the API and run the loop, until a signal ends the server or the lead is lost.

    `must_end` returns whether a signal has come before the server.
    """
    server = _server(settings, deployment, lead)

    def end() -> None:
        server.should_exit = True
        deployment.wake.set()

    lead.call_on_loss(end)
    if must_end():
        end()
    stopped = threading.Event()
    loop = threading.Thread(
        target=deployment.run_loop, args=(stopped,), name="castor-loop", daemon=True
    )
    loop.start()
    role = "leader" if lead.leads else "follower"
    _log.info("%s, listening on %s, state in %s", role, deployment.url, settings.state)
    _log.info("pages: %s/ (castor open signs a browser in)", deployment.url.rstrip("/"))
    if settings.parent is not None:
        threading.Thread(
            target=_end_with_parent, args=(settings.parent, deployment, server), daemon=True
        ).start()
    try:
        server.run(sockets=[listener])
    finally:
        stopped.set()
        deployment.wake.set()
        loop.join()
        deployment.close()


def _server(settings: ServeSettings, deployment: Deployment, lead: Lead) -> HttpServer:
    """Return the server of the API, which has not started."""
    address = LeaderAddress(lead.leader_address, SystemClock())
    limited = RequestLimits(deployment.app, SystemClock())
    app = FollowerGate(limited, lambda: not lead.leads, address)
    healthy = HealthGate(app, deployment.health, deployment.authentication)
    return HttpServer(
        RequestMeter(healthy, deployment.meters.answered, SystemClock(), deployment.traces.span),
        deployment.end_polls,
        settings.tls,
        end_seconds=None if settings.parent is None else _END_SECONDS,
    )


def _check_start(settings: ServeSettings) -> None:
    """Check the settings before a new state directory is created.

    Raises:
        SpecError: the policy, a file of pools, the identity provider or the receiver of traces
            can't be used.
        Conflict: the state directory is new, and the port is in use.
    """
    _planner(settings.policy)
    for source in settings.pools:
        cloud_of(source)
    require_provider_client(settings.oidc)
    require_traces(settings.traces, os.environ)
    if settings.follows:
        check_follower(settings.store_url, settings.state)
    if not settings.state.exists():
        with bound_socket(settings.state, settings.host, settings.port):
            pass


def _end_with_parent(parent: int, deployment: Deployment, server: HttpServer) -> None:
    """Stop all jobs, terminate all instances and end the server once the parent process dies."""
    clock = SystemClock()
    wait_for_exit(lambda: os.getppid() == parent, clock)
    _log.warning("parent process %d has died: this controller stops its jobs and ends", parent)
    try:
        terminate_all(deployment.store, deployment.wake.set, clock, GIVE_BACK_SECONDS)
    finally:
        server.should_exit = True
