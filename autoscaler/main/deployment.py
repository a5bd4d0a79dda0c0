"""Controller whose providers, store and clock are chosen by its settings."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI

from autoscaler.clock import Clock
from autoscaler.clouds import open_providers, open_storage
from autoscaler.control_loop import ControlLoop, Pauses, StoreTest
from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.controller import Controller, TickReport
from autoscaler.controller.predict.forecasts import Forecasts
from autoscaler.controller.predict.live_jobs import LiveJobs
from autoscaler.controller.predict.what_if import WhatIfs
from autoscaler.controller.workers import ThreadWorkers
from autoscaler.domain.errors import StoreError
from autoscaler.domain.instance import HeldInstance
from autoscaler.lead import Lead
from autoscaler.lighthouse.host import LighthouseHost, LighthouseSettings
from autoscaler.loop_watch import LoopWatch
from autoscaler.main.settings import ServeSettings
from autoscaler.notifications.outbox import Notifications
from autoscaler.notifications.watch import leader_notice
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy, require_ground
from autoscaler.service.access.authentication import Authentication, load_key
from autoscaler.service.access.browser_sessions import BrowserSessions, open_sessions
from autoscaler.service.access.job_secrets import AllowedSecrets
from autoscaler.service.access.logins import open_logins
from autoscaler.service.app import ServiceDependencies, create_app
from autoscaler.service.files.job_log_limit import stored_limit
from autoscaler.service.files.logs import Logs
from autoscaler.service.files.quotas import bundle_quota, study_quota
from autoscaler.service.files.retention import FileRetention
from autoscaler.service.files.stored import StoredFiles
from autoscaler.service.files.stored_logs import StoredLogs
from autoscaler.service.files.uploads import Bundles, TrialFiles
from autoscaler.service.health import Health
from autoscaler.service.instances.assignments import Assignments
from autoscaler.service.instances.heartbeats import HeartbeatReceiver
from autoscaler.service.instances.nodes import Nodes
from autoscaler.service.jobs.budgets import SharedBudgets
from autoscaler.service.jobs.focus_export import FocusExport
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.submissions import Submissions
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages.events import Changes
from autoscaler.service.studies.checkpoints import TrialCheckpoints
from autoscaler.service.studies.studies import Studies
from autoscaler.state_directory import store_url_of
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store
from autoscaler.telemetry.meters import MeteredPolicy, MeteredProvider, Meters
from autoscaler.telemetry.metrics_page import MetricSources, MetricsPage
from autoscaler.telemetry.traces import open_traces
from autoscaler.tls import certificate_end_seconds
from providers.plugin import ControllerContext

_log = logging.getLogger(__name__)

_WORKERS = 8
END_SECONDS = 2
"""Limit for open requests and messages to people when a controller ends."""


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
        policy = MeteredPolicy(planning_policy(settings.policy), self.meters, self.traces.span)
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
        self._bundles = Bundles(
            state / "bundles",
            settings.maximum_bundle_bytes,
            quota=bundle_quota(state / "bundles", self.store.owners, settings.owner_bundle_bytes),
        )
        self._trial_files = TrialFiles(
            state / "files", quota=study_quota(state / "files", settings.study_file_bytes)
        )
        self._file_retention = FileRetention(
            state, self.store, keep_seconds, clock, self._forget_file
        )
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
        self.notifications.stop(END_SECONDS)
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
        bundles = self._bundles
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
            self._trial_files,
            self._woke,
            self._clock,
            status,
            TrialCheckpoints(store, assignments, stored),
            settings.controller.study_usd,
        )
        self._job_logs = self._logs()
        self._changes = Changes()
        self._receipts = Receipts(store, status)
        views = Views(store, status, assignments, release)
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
            views=views,
            receipts=self._receipts,
            focus_export=FocusExport(store, status, views.stored_costs),
            bundles=bundles,
            logs=self._job_logs,
            results=results,
            budgets=SharedBudgets(
                *(store, self.controller.budget_standings, lambda: status.budget_plans),
                *(self.wake.set, self._clock),
            ),
            fixed_sizes=Forecasts(store, status, self._clock).of,
            what_if=WhatIfs(
                *(store, status, planning_policy(settings.policy)),
                *(settings.controller.replan_seconds, self._clock),
            ).of,
            outlooks=self._outlooks(),
            metrics=self._metrics(release).text,
            status=status,
            changes=self._changes,
            notifications=self.notifications,
            clock=self._clock,
            optuna_dashboard=settings.optuna_dashboard,
        )
        return create_app(dependencies, release)

    def _outlooks(self) -> Outlooks:
        settings, store, clock = self._settings, self.store, self._clock
        live = LiveJobs(
            *(store, self.controller.status, settings.controller.replan_seconds, clock),
            planning_policy(settings.policy),
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

    def _forget_file(self, path: Path) -> None:
        """Stop counting an uploaded file that was deleted."""
        self._bundles.forget(path)
        self._trial_files.forget(path)

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


def planning_policy(name: str) -> Policy:
    """Return the policy of that name.

    Raises:
        SpecError: the name is unknown, or the policy plans for a fixed pool.
    """
    policy = create_policy(name)
    require_ground(name, policy, is_pool=False)
    return policy
