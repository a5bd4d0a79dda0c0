"""Idle instances of ended trials, kept for a limited time for the study's next trial.

The time limit is that of the ski rental problem: an instance stays idle for as long as a new one
would take to start. The idle cost is then at most that of a start, and the total at most twice
the optimum with known arrivals. No online rule can promise less (Karlin, Manasse, Rudolph and
Sleator, Algorithmica 3, 1988, on snoopy caching). The start time of this instance is the estimate
for a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from autoscaler.controller.act.job_end import (
    has_done_its_part,
)
from autoscaler.controller.budgets.guard import Budgets
from autoscaler.controller.budgets.spending import cost_usd
from autoscaler.controller.clock_jumps import SteadyTimes
from autoscaler.controller.hands_off import hands_off
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import CastorError
from autoscaler.domain.instance import (
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.store.records.holding import has_left
from autoscaler.store.store import Store

_PHASES_WITHOUT_FAILURE = (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.FINISHED)


class IdleInstances:
    """Choice of the idle instances that are kept for another trial."""

    def __init__(
        self, store: Store, settings: ControllerSettings, budgets: Budgets, times: SteadyTimes
    ) -> None:
        self._store = store
        self._settings = settings
        self._budgets = budgets
        self._times = times
        self._promised_to: dict[str, str] = {}

    def stays(self, held: HeldInstance, job: JobRecord, now_seconds: float) -> bool:
        """Return whether an instance of this job is kept for another trial.

        False where no driver holds the study's lease, launches are frozen or a budget is used up.
        """
        study = job.spec.study
        ends_well = job.phase in _PHASES_WITHOUT_FAILURE or held.trial_ending is not None
        is_lost = held.reclaim_seconds is not None or held.seat is not None
        if study is None or not ends_well or is_lost:  # a gang goes back as a whole
            return False
        if has_left(held):
            return held.id in self._promised_to and self._is_worth_keeping(held, job, now_seconds)
        if not has_done_its_part(held, job) or held.desired is Desired.ABSENT:
            return False
        return self._is_worth_keeping(held, job, now_seconds)

    def promise(self, job: str, leaving: Iterable[HeldInstance], count: int) -> int:
        """Reserve for a trial up to `count` instances that others are leaving; return how many."""
        promised_to = {
            instance: trial for instance, trial in self._promised_to.items() if trial != job
        }
        reserved = [held.id for held in leaving if held.id not in promised_to][:count]
        self._promised_to = promised_to | dict.fromkeys(reserved, job)
        return len(reserved)

    def _is_worth_keeping(self, held: HeldInstance, job: JobRecord, now_seconds: float) -> bool:
        """Return whether an instance is within its idle time and may be kept at all."""
        since_seconds = free_since_seconds(held, job)
        if since_seconds is not None:
            steady_seconds = self._times.now_since(f"{held.id} idle", since_seconds, now_seconds)
            if steady_seconds - since_seconds >= start_seconds(held):
                return False
        if hands_off(self._settings, self._store) is not None:
            return False
        study = job.spec.study
        if study is None or self._store.leases.holder(study, now_seconds) is None:
            return False
        try:
            return self._is_needed(study) and self._is_within_budgets(
                held, job, study, now_seconds
            )
        except CastorError:  # reported as the study's error
            return False

    def _is_needed(self, study: str) -> bool:
        """Return whether a trial of the study may need an instance, now or in a later rung."""
        terms = self._store.studies.terms(study)
        if terms is None or terms.to_begin != 0 or terms.later:
            return True
        holding = {held.job for held in self._store.instances.alive()}
        return any(
            job.spec.study == study and job.id not in holding for job in self._store.jobs.alive()
        )

    def free(
        self, alive: Iterable[HeldInstance], now_seconds: float, study: str | None = None
    ) -> list[HeldInstance]:
        """Return the idle instances that are kept, of one study or of all."""
        idle = []
        for held in alive:
            is_done = held.completed_seconds is not None or held.done_attempt is not None
            if not is_done and not has_left(held):
                continue
            job = self._store.jobs.get(held.job)
            is_free = job.phase.is_final or has_left(held)
            if not is_free or study not in (None, job.spec.study):
                continue
            if self.stays(held, job, now_seconds):
                idle.append(held)
        return idle

    def soon_free(
        self, alive: Iterable[HeldInstance], now_seconds: float, study: str
    ) -> list[HeldInstance]:
        """Return the instances that unfinished trials of a study are leaving or have left."""
        leaving = []
        for held in alive:
            since_seconds = _leaves_since_seconds(held)
            if since_seconds is None or held.reclaim_seconds is not None:
                continue
            job = self._store.jobs.get(held.job)
            left_seconds = start_seconds(held) - (now_seconds - since_seconds)
            if job.spec.study == study and not job.phase.is_final and left_seconds > 0:
                leaving.append(held)
        return leaving

    def _is_within_budgets(
        self, held: HeldInstance, job: JobRecord, study: str, now_seconds: float
    ) -> bool:
        """Return whether the budgets of job and study permit keeping the instance."""
        if not self._budgets.of_job(job, [held]).permits(Decimal(0), now_seconds):
            return False
        to_come_usd = cost_usd([held], start_seconds(held))
        guard = self._budgets.of_study(study, self._store.jobs.alive(), {})
        return guard.permits(to_come_usd, now_seconds)


def needs_light(job: JobRecord, instances: Iterable[HeldInstance]) -> bool:
    """Return whether a job with handed-over instances needs a lighthouse.

    No launch has started one for such a job. Restartable jobs never need one.
    """
    were_others = any(held.handed_over_seconds is not None for held in instances)
    return were_others and job.spec.instances.maximum > 1 and job.spec.restart is None


def free_since_seconds(held: HeldInstance, job: JobRecord) -> float | None:
    """Return when an instance became idle, in epoch seconds; None if its job still uses it."""
    return held.draining_seconds if has_left(held) else job.ended_seconds


def _leaves_since_seconds(held: HeldInstance) -> float | None:
    """Return when the end of an instance's trial became known; None if it does not leave."""
    if held.phase is InstancePhase.ENDED:
        return None
    is_going = held.phase is InstancePhase.DRAINING and held.training_seconds is not None
    if is_going or has_left(held):
        return held.draining_seconds
    return held.ending_seconds if held.desired is Desired.PRESENT else None


def start_seconds(held: HeldInstance) -> float:
    """Return the seconds from an instance's launch to its first work for any job."""
    if held.measured_start_seconds is not None:
        return held.measured_start_seconds
    if held.training_seconds is None or held.launched_seconds is None:
        return 0.0
    return held.training_seconds - held.launched_seconds
