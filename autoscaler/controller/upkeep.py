"""What becomes of jobs and their instances apart from any plan: retries, endings, returns."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from autoscaler.controller.calls import Lighthouses, Workers
from autoscaler.controller.finishing import (
    COMPLETE_FACT,
    at_work,
    end_of,
    has_done_its_part,
    is_over,
)
from autoscaler.controller.job_budget import budget_cause, is_job_budget_used_up
from autoscaler.controller.keeper import LighthouseKeeper
from autoscaler.controller.leaving import end_seconds
from autoscaler.controller.lingering import Lingering, needs_light
from autoscaler.controller.sessions import is_without_session
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.instance import (
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.failures.retry import next_attempt
from autoscaler.store.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_NOT_AT_WORK = (
    InstancePhase.REQUESTED,
    InstancePhase.QUEUED,
    InstancePhase.BOOTING,
    InstancePhase.DRAINED,
)


class Upkeep:
    """Moves jobs on to their ends, and has instances that are not wanted terminated."""

    def __init__(
        self,
        store: Store,
        lighthouses: Lighthouses,
        workers: Workers,
        settings: ControllerSettings,
        lingering: Lingering,
    ) -> None:
        self._store = store
        self._keeper = LighthouseKeeper(store, lighthouses, workers)
        self.troubles = self._keeper.troubles
        self._settings = settings
        self._lingering = lingering

    def keep_up(
        self, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """One job that has not ended, and those of its instances that have not."""
        if instances and (job.lighthouse is not None or needs_light(job, instances)):
            self._keeper.keep_lit(job.id, now_seconds)
        every = self._every(job)
        self._start(job, every, now_seconds)
        self._complete(job, instances, every, now_seconds)
        self._retry_or_fail(job, every, now_seconds)
        self._finish_again(job, every, now_seconds)
        job = self._store.jobs.get(job.id)  # it may have ended
        self._guard_budget(job, instances, now_seconds)
        self._stop(job, instances, now_seconds)

    def give_back(self, held: HeldInstance, job: JobRecord, now_seconds: float) -> None:
        """Have an instance terminated once it has left its job, or has had long enough to.

        One that may serve the next trial of its study lingers before.
        """
        if held.desired is Desired.PRESENT:
            is_over = job.phase.is_final or has_done_its_part(held, job)
            if not is_over or self._lingering.stays(held, job, now_seconds):
                return
            held = self._store.instances.release(held.id, now_seconds)
        elif self._lingering.stays(held, job, now_seconds):
            return
        late_seconds = end_seconds(self._store, job, held, self._settings.drain_seconds)
        has_left = held.phase in _NOT_AT_WORK or has_done_its_part(held, job)
        is_silent = held.seen_seconds is None
        if has_left or is_silent or now_seconds > late_seconds:
            self._store.instances.request_termination(held.id, now_seconds)

    def put_out(self, job: JobRecord) -> None:
        """End the lighthouse of a job that has ended and holds nothing any more."""
        if job.lighthouse is not None:
            self._keeper.put_out(job.id)

    def _start(self, job: JobRecord, every: Sequence[HeldInstance], now_seconds: float) -> None:
        """Record that a job runs: an instance trains, or its script runs without a session."""
        if job.phase is not JobPhase.PENDING:
            return
        trains = any(held.phase is InstancePhase.TRAINING for held in every)
        starts = any(held.phase is InstancePhase.STARTING for held in every)
        if trains or (starts and is_without_session(job, every)):
            self._store.jobs.set_phase(job.id, JobPhase.RUNNING, now_seconds)

    def _retry_or_fail(
        self, job: JobRecord, every: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Answer the failures of the present attempt, once.

        Those of replicas that one has left by completing the job are none.
        """
        if job.phase not in (JobPhase.PENDING, JobPhase.RUNNING):
            return
        failures = self._store.reports.failures(job.id)
        if not any(failure.attempt == job.attempt for failure in failures):
            return
        if _completed(every):
            return
        decision = next_attempt(failures, job.spec.retries)
        if decision.retry:
            retry_seconds = now_seconds + decision.delay_seconds
            self._store.jobs.start_attempt(job.id, job.attempt + 1, retry_seconds)
            self._tell(now_seconds, "retry", decision.reason, job.id)
        else:
            last = failures[-1].cause
            cause = f"{last} ({decision.reason.removesuffix(f': {last}')})"
            self._store.jobs.set_phase(job.id, JobPhase.FAILED, now_seconds, cause)
            self._tell(now_seconds, "failed", cause, job.id)

    def _complete(
        self,
        job: JobRecord,
        instances: Sequence[HeldInstance],
        every: Sequence[HeldInstance],
        now_seconds: float,
    ) -> None:
        """A job is finished when one replica has completed it and no other is at it any more."""
        if job.phase not in (JobPhase.PENDING, JobPhase.RUNNING):
            return
        completed = _completed(every)
        if not completed:
            return
        first_seconds = min(float(held.facts[COMPLETE_FACT]) for held in completed)
        busy = [
            held
            for held in instances
            if held.phase is InstancePhase.TRAINING and not has_done_its_part(held, job)
        ]
        if busy and now_seconds - first_seconds < self._settings.completion_seconds:
            return
        self._store.jobs.set_phase(job.id, JobPhase.RUNNING, now_seconds)
        end = end_of(job, every)
        if end.phase is JobPhase.STOPPED:
            self._store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, end.cause)
        self._store.jobs.set_phase(job.id, end.phase, now_seconds, end.cause)
        self._tell(now_seconds, end.kind, end.text, job.id)

    def is_finishing(self, job: JobRecord, now_seconds: float) -> bool:
        """Return whether there is nothing to plan for a job, as it is about to end.

        A replica has completed it, or some have done their part and some are at it, or it is a
        trial whose end is known. The end may be reported after `keep_up` has looked.
        """
        every = self._every(job)
        if _completed(every):
            return True
        study = job.spec.study
        if study is not None and self._lingering.soon_free(every, now_seconds, study):
            return True
        return is_over(job, every) and bool(at_work(job, every))

    def _finish_again(
        self, job: JobRecord, every: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Start anew what was at its end when those were lost that were to tell it."""
        job = self._store.jobs.get(job.id)  # its attempt may be a new one
        is_lost = is_over(job, every) and not at_work(job, every)
        if job.phase is JobPhase.RUNNING and is_lost and not _completed(every):
            self._store.jobs.start_attempt(job.id, job.attempt + 1, None)
            text = "its last replica was lost before it had saved the job's last state"
            self._tell(now_seconds, "retry", text, job.id)

    def _every(self, job: JobRecord) -> tuple[HeldInstance, ...]:
        return self._store.instances.of_job(job.id, include_ended=True)

    def _guard_budget(
        self, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Stop a job before it can spend more than its budget, whatever was planned."""
        if job.phase not in (JobPhase.PENDING, JobPhase.RUNNING):
            return
        if is_job_budget_used_up(self._store, job, instances, now_seconds):
            cause = budget_cause(self._store, job)
            self._store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, cause)
            self._tell(now_seconds, "budget", cause, job.id)

    def _stop(self, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float) -> None:
        if job.phase is not JobPhase.STOPPING:
            return
        for held in instances:
            self._store.instances.release(held.id, now_seconds)
        if not instances:
            self._store.jobs.set_phase(job.id, JobPhase.STOPPED, now_seconds)
            self._tell(now_seconds, "stopped", job.cause or "as it was asked to", job.id)

    def _tell(self, now_seconds: float, kind: str, text: str, job: str) -> None:
        _log.info("%s %s: %s", job, kind, text)
        self._store.events.add(Event(now_seconds, kind, text, job))


def _completed(instances: Sequence[HeldInstance]) -> list[HeldInstance]:
    return [held for held in instances if COMPLETE_FACT in held.facts]
