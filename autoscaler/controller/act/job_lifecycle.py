"""Lifecycle of jobs and instances apart from plans: starts, retries, ends and terminations."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from autoscaler.controller.act.gang_losses import GangLosses
from autoscaler.controller.act.idle_instances import IdleInstances, needs_light
from autoscaler.controller.act.intents import Lighthouses, light
from autoscaler.controller.act.job_end import (
    at_work,
    end_of,
    has_done_its_part,
    is_over,
    trial_ending,
)
from autoscaler.controller.act.job_failures import JobFailures
from autoscaler.controller.act.restarts import Restarts
from autoscaler.controller.act.stall_watch import StallWatch
from autoscaler.controller.budgets.guard import Budgets
from autoscaler.controller.budgets.leave_limits import end_seconds
from autoscaler.controller.clock_jumps import SteadyTimes
from autoscaler.controller.errors import ErrorRecord
from autoscaler.controller.jobs.sessions import is_without_session
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import Workers
from autoscaler.domain.instance import (
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_NOT_AT_WORK = (
    InstancePhase.REQUESTED,
    InstancePhase.QUEUED,
    InstancePhase.BOOTING,
    InstancePhase.DRAINED,
)
_CHECK_SECONDS = 5.0


class JobLifecycle:
    """Lifecycle of jobs, and termination of instances that are no longer wanted."""

    def __init__(
        self,
        store: Store,
        lighthouses: Lighthouses,
        workers: Workers,
        settings: ControllerSettings,
        idle_instances: IdleInstances,
        budgets: Budgets,
        times: SteadyTimes,
        failures: JobFailures,
    ) -> None:
        self._store = store
        self._times = times
        self._failures = failures
        self.stall_watch = StallWatch(store)
        self._lighthouses = LighthouseRunner(store, lighthouses, workers)
        self.troubles = self._lighthouses.troubles
        self._settings = settings
        self._idle_instances = idle_instances
        self._budgets = budgets
        self._restarts = Restarts(store)
        self._gang_losses = GangLosses(store)

    def keep_up(
        self, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Advance a job that has not ended; `instances` are those that have not ended."""
        if instances and (job.lighthouse is not None or needs_light(job, instances)):
            self._lighthouses.ensure_running(job.id, now_seconds)
        all_instances = self._all_instances(job)
        self._start(job, all_instances, now_seconds)
        self._complete(job, instances, all_instances, now_seconds)
        self._retry_or_fail(job, all_instances, now_seconds)
        self._restart_lost_end(job, all_instances, now_seconds)
        job = self._store.jobs.get(job.id)  # the job may have ended
        self.stall_watch.keep_up(job, instances, now_seconds)
        job = self._store.jobs.get(job.id)  # a stalled job may be paused
        self._budgets.of_job(job, instances).enforce(self._store, now_seconds)
        if any(held.seat is not None for held in instances):
            self._gang_losses.keep_up(job, now_seconds)
        if job.spec.restart is not None:
            self._restarts.keep_up(self._store.jobs.get(job.id), instances, now_seconds)
        self._stop(job, instances, now_seconds)

    def give_back(self, held: HeldInstance, job: JobRecord, now_seconds: float) -> None:
        """Terminate an instance once it has left its job, or its time to leave is over.

        An instance that may serve the next trial of its study is kept first.
        """
        if held.desired is Desired.PRESENT:
            is_over = job.phase.is_final or has_done_its_part(held, job)
            if not is_over or self._idle_instances.stays(held, job, now_seconds):
                return
            held = self._store.instances.release(held.id, now_seconds)
        elif self._idle_instances.stays(held, job, now_seconds):
            return
        deadline_seconds = end_seconds(self._store, job, held, self._settings.drain_seconds)
        has_left = held.phase in _NOT_AT_WORK or has_done_its_part(held, job)
        is_silent = held.seen_seconds is None
        steady_seconds = self._times.now_since(
            f"{held.id} leaving", held.draining_seconds or now_seconds, now_seconds
        )
        if has_left or is_silent or steady_seconds > deadline_seconds:
            self._store.instances.request_termination(held.id, now_seconds)

    def release_lighthouse(self, job: JobRecord) -> None:
        """End the lighthouse of a job that has ended and holds no instances."""
        if job.lighthouse is not None:
            self._lighthouses.release(job.id)

    def _start(
        self, job: JobRecord, all_instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Set a job to running once an instance trains or its script runs without a session."""
        if job.phase is not JobPhase.PENDING:
            return
        is_training = any(held.phase is InstancePhase.TRAINING for held in all_instances)
        is_starting = any(held.phase is InstancePhase.STARTING for held in all_instances)
        if is_training or (is_starting and is_without_session(job, all_instances)):
            self._store.jobs.set_phase(job.id, JobPhase.RUNNING, now_seconds)

    def _retry_or_fail(
        self, job: JobRecord, all_instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Retry or fail the job for failures of the present attempt.

        Failures after a replica has completed the job are ignored: the others may have lost their
        peer.
        """
        if job.phase not in (JobPhase.PENDING, JobPhase.RUNNING):
            return
        if not _completed(all_instances):
            self._failures.settle(job, all_instances, now_seconds)

    def _complete(
        self,
        job: JobRecord,
        instances: Sequence[HeldInstance],
        all_instances: Sequence[HeldInstance],
        now_seconds: float,
    ) -> None:
        """End a job that one replica has completed, once no other replica trains.

        Other replicas have at most `completion_seconds`. A trial of a known end whose instances
        are lost before one reports so has ended, too: instances ordered since have no work.
        """
        if job.phase not in (JobPhase.PENDING, JobPhase.RUNNING):
            return
        completed = _completed(all_instances)
        knows_end = trial_ending(instances) is not None
        has_lost_end = not knows_end and trial_ending(all_instances) is not None
        if not completed and not has_lost_end:
            return
        first_seconds = min(
            (held.completed_seconds or 0.0 for held in completed), default=now_seconds
        )
        busy = [
            held
            for held in instances
            if held.phase is InstancePhase.TRAINING and not has_done_its_part(held, job)
        ]
        steady_seconds = self._times.now_since(f"{job.id} over", first_seconds, now_seconds)
        may_wait = bool(completed) and bool(busy)
        if may_wait and steady_seconds - first_seconds < self._settings.completion_seconds:
            return
        self._store.jobs.set_phase(job.id, JobPhase.RUNNING, now_seconds)
        end = end_of(job, all_instances)
        if end.phase is JobPhase.STOPPED:
            self._store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, end.cause)
        self._store.jobs.set_phase(job.id, end.phase, now_seconds, end.cause)
        self._record_event(now_seconds, end.kind, end.text, job.id)

    def is_finishing(self, job: JobRecord, now_seconds: float) -> bool:
        """Return whether a job is about to end, so that it needs no plan.

        True if a replica has completed the job, if some replicas are done and others still work,
        or if the end of its trial is known. The end may be reported after `keep_up`.
        """
        all_instances = self._all_instances(job)
        if _completed(all_instances):
            return True
        study = job.spec.study
        if study is not None and self._idle_instances.soon_free(all_instances, now_seconds, study):
            return True
        return is_over(job, all_instances) and bool(at_work(job, all_instances))

    def _restart_lost_end(
        self, job: JobRecord, all_instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Start another attempt if all replicas that could report the job's end were lost."""
        job = self._store.jobs.get(job.id)  # another attempt may have started
        is_lost = is_over(job, all_instances) and not at_work(job, all_instances)
        if job.phase is JobPhase.RUNNING and is_lost and not _completed(all_instances):
            self._store.jobs.start_attempt(job.id, job.attempt + 1, None)
            text = "its last replica was lost before it had saved the job's last state"
            self._record_event(now_seconds, "retry", text, job.id)

    def _all_instances(self, job: JobRecord) -> tuple[HeldInstance, ...]:
        return self._store.instances.of_job(job.id, include_ended=True)

    def _stop(self, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float) -> None:
        if job.phase is not JobPhase.STOPPING:
            return
        for held in instances:
            self._store.instances.release(held.id, now_seconds)
        if not instances:
            self._store.jobs.set_phase(job.id, JobPhase.STOPPED, now_seconds)
            self._record_event(now_seconds, "stopped", job.cause or "on request", job.id)

    def _record_event(self, now_seconds: float, kind: str, text: str, job: str) -> None:
        _log.info("%s %s: %s", job, kind, text, extra={"job": job})
        self._store.events.add(Event(now_seconds, kind, text, job))


def _completed(instances: Sequence[HeldInstance]) -> list[HeldInstance]:
    return [held for held in instances if held.completed_seconds is not None]


class LighthouseRunner:
    """Repair of the lighthouses that launches have started.

    A supervisor that dies takes its server with it. A job that only trains would not notice.
    """

    def __init__(self, store: Store, lighthouses: Lighthouses, workers: Workers) -> None:
        self._store = store
        self._lighthouses = lighthouses
        self._workers = workers
        self._checked_seconds: dict[str, float] = {}
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self.troubles = ErrorRecord("job")

    def ensure_running(self, job: str, now_seconds: float) -> None:
        """Check every few seconds that the job's lighthouse runs, and restart it if not."""
        if abs(now_seconds - self._checked_seconds.get(job, float("-inf"))) >= _CHECK_SECONDS:
            self._checked_seconds[job] = now_seconds
            self._submit(job, partial(light, self._store, self._lighthouses, job))

    def release(self, job: str) -> None:
        """End the job's lighthouse; its address is kept until the lighthouse has ended."""
        self._checked_seconds.pop(job, None)
        self._submit(job, partial(self._release, job))

    def _release(self, job: str) -> None:
        self._lighthouses.release(job)
        self._store.jobs.set_lighthouse(job, None)

    def _submit(self, job: str, call: Callable[[], None]) -> None:
        with self._lock:
            if job in self._running:
                return
            self._running.add(job)
        self._workers.submit(partial(self._run, job, call))

    def _run(self, job: str, call: Callable[[], None]) -> None:
        try:
            self.troubles.attempt(job, "its lighthouse", call)
        finally:
            with self._lock:
                self._running.discard(job)
