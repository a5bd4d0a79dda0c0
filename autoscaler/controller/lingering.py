"""Instances that a trial has left, kept for a moment: the study's next trial may want one.

How long is the question of whoever rents skis and may buy them: not knowing when the next trial
comes, keep an instance for as long as a new one would take to start. Then the idle time paid is at
most what a start would have cost, and the whole never more than twice what it would have been had
the future been known (Karlin, Manasse, Rudolph and Sleator, Algorithmica 3, 1988, on snoopy
caching: a rule that does not know the future can't promise less). What this very instance took is
what the next one is expected to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from autoscaler.controller.finishing import (
    COMPLETE_FACT,
    DONE_FACT,
    TRIAL_END_FACT,
    has_done_its_part,
)
from autoscaler.controller.hands_off import hands_off
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.study_spending import StudySpending
from autoscaler.domain.errors import CastorError
from autoscaler.domain.instance import (
    HANDED_OVER_FACT,
    START_FACT,
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.holding import has_left
from autoscaler.store.store import Store

# Set when the driver has answered a trial's end: its instance will soon be free.
ENDING_FACT = "ending"
_ENDS_WELL = (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.FINISHED)


class Lingering:
    """Says which instances stay though their job needs them no more."""

    def __init__(
        self, store: Store, settings: ControllerSettings, spending: StudySpending
    ) -> None:
        self._store = store
        self._settings = settings
        self._spending = spending
        self._promised: dict[str, str] = {}

    def stays(self, held: HeldInstance, job: JobRecord, now_seconds: float) -> bool:
        """Whether an instance of this job is kept for another trial: not where nobody drives the
        study, nothing is to be bought or the job's budget is used up."""
        study = job.spec.study
        ends_well = job.phase in _ENDS_WELL or TRIAL_END_FACT in held.facts
        if study is None or not ends_well or held.reclaim_seconds is not None:
            return False
        if has_left(held):
            return held.id in self._promised and self._is_worth(held, job, now_seconds)
        if not has_done_its_part(held, job) or held.desired is Desired.ABSENT:
            return False
        return self._is_worth(held, job, now_seconds)

    def promise(self, job: str, leaving: Iterable[HeldInstance], count: int) -> int:
        """Keep for a trial as many as it lacks of those that others leave; returns how many."""
        promised = {each: to for each, to in self._promised.items() if to != job}
        found = [held.id for held in leaving if held.id not in promised][:count]
        self._promised = promised | dict.fromkeys(found, job)
        return len(found)

    def _is_worth(self, held: HeldInstance, job: JobRecord, now_seconds: float) -> bool:
        """Whether it has not been of no use for too long, and may be kept at all."""
        since_seconds = free_since_seconds(held, job)
        if since_seconds is not None and now_seconds - since_seconds >= start_seconds(held):
            return False
        if hands_off(self._settings, self._store) is not None:
            return False
        study = job.spec.study
        if study is None or self._store.leases.holder(study, now_seconds) is None:
            return False
        try:
            return self._has_use(study) and self._has_money(held, job, study, now_seconds)
        except CastorError:  # told as the study's trouble
            return False

    def _has_use(self, study: str) -> bool:
        """Whether a trial may want one: it is to begin, or waits, or a rung is to come."""
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
        """Those that linger, of one study or of all."""
        found = []
        for held in alive:
            is_done = COMPLETE_FACT in held.facts or DONE_FACT in held.facts
            if not is_done and not has_left(held):
                continue
            job = self._store.jobs.get(held.job)
            is_free = job.phase.is_final or has_left(held)
            if not is_free or study not in (None, job.spec.study):
                continue
            if self.stays(held, job, now_seconds):
                found.append(held)
        return found

    def soon_free(
        self, alive: Iterable[HeldInstance], now_seconds: float, study: str
    ) -> list[HeldInstance]:
        """Those of a study that its trials are about to leave, or have left for another."""
        found = []
        for held in alive:
            since_seconds = _leaves_since_seconds(held)
            if since_seconds is None or held.reclaim_seconds is not None:
                continue
            job = self._store.jobs.get(held.job)
            left_seconds = start_seconds(held) - (now_seconds - since_seconds)
            if job.spec.study == study and not job.phase.is_final and left_seconds > 0:
                found.append(held)
        return found

    def _has_money(
        self, held: HeldInstance, job: JobRecord, study: str, now_seconds: float
    ) -> bool:
        """Whether neither the job's budget nor the study's is passed by its staying."""
        terms = self._store.studies.terms(study)
        to_come_usd = held.usd_per_hour * Decimal(start_seconds(held)) / 3600
        own_usd = job.spec.objective.most_usd
        if own_usd is not None:
            ledger = Ledger(self._store.ledger.entries(job.id))
            if ledger.spent(job.id, now_seconds) >= own_usd:
                return False
        if terms is None or terms.objective.most_usd is None:
            return True
        spent_usd = self._spending.spent(study, self._store.jobs.alive(), now_seconds)
        return spent_usd + to_come_usd < terms.objective.most_usd


def needs_light(job: JobRecord, instances: Iterable[HeldInstance]) -> bool:
    """Whether it needs a lighthouse that no launch has lit: its instances were another job's."""
    were_others = any(HANDED_OVER_FACT in held.facts for held in instances)
    return were_others and job.spec.instances.maximum > 1


def free_since_seconds(held: HeldInstance, job: JobRecord) -> float | None:
    """Since when it is of no use to its job; None: it is about to be."""
    return held.draining_seconds if has_left(held) else job.ended_seconds


def _leaves_since_seconds(held: HeldInstance) -> float | None:
    """Since when it is known that its trial leaves it; None: it does not."""
    if held.phase is InstancePhase.ENDED:
        return None
    is_going = held.phase is InstancePhase.DRAINING and held.training_seconds is not None
    if is_going or has_left(held):
        return held.draining_seconds
    if ENDING_FACT in held.facts and held.desired is Desired.PRESENT:
        return float(held.facts[ENDING_FACT])
    return None


def start_seconds(held: HeldInstance) -> float:
    """What this instance took from its launch to the first work it did for any job."""
    facts: Mapping[str, str] = held.facts
    if START_FACT in facts:
        return float(facts[START_FACT])
    if held.training_seconds is None or held.launched_seconds is None:
        return 0.0
    return held.training_seconds - held.launched_seconds
