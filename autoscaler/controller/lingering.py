"""Instances whose trial has ended, kept for a moment: the study's next trial may want one.

How long is the question of whoever rents skis and may buy them: not knowing when the next trial
comes, keep an instance for as long as a new one would take to start. Then the idle time paid is at
most what a start would have cost, and the whole never more than twice what it would have been had
the future been known (Karlin, Manasse, Rudolph and Sleator, Algorithmica 3, 1988, on snoopy
caching: a rule that does not know the future can't promise less). What this very instance took is
what the next one is expected to take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autoscaler.controller.finishing import COMPLETE_FACT, DONE_FACT, has_done_its_part
from autoscaler.controller.hands_off import hands_off
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.instance import HANDED_OVER_FACT, START_FACT, Desired, HeldInstance
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store

# Set when the driver has answered a trial's end: its instance will soon be free.
ENDING_FACT = "ending"


class Lingering:
    """Says which instances stay though their job needs them no more."""

    def __init__(self, store: Store, settings: ControllerSettings) -> None:
        self._store = store
        self._settings = settings

    def stays(self, held: HeldInstance, job: JobRecord, now_seconds: float) -> bool:
        """Whether an instance of this job is kept for another trial: not where nobody drives the
        study, nothing is to be bought or the job's budget is used up."""
        study = job.spec.study
        ends_well = job.phase in (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.FINISHED)
        if study is None or not ends_well or not has_done_its_part(held, job):
            return False
        if held.desired is Desired.ABSENT or held.reclaim_seconds is not None:
            return False
        ended_seconds = now_seconds if job.ended_seconds is None else job.ended_seconds
        if now_seconds - ended_seconds >= start_seconds(held):
            return False
        if hands_off(self._settings, self._store) is not None:
            return False
        is_driven = self._store.leases.holder(study, now_seconds) is not None
        return is_driven and self._has_money(job, now_seconds)

    def free(
        self, alive: Iterable[HeldInstance], now_seconds: float, study: str | None = None
    ) -> list[HeldInstance]:
        """Those that linger, of one study or of all."""
        found = []
        for held in alive:
            if COMPLETE_FACT not in held.facts and DONE_FACT not in held.facts:
                continue
            job = self._store.jobs.get(held.job)
            if not job.phase.is_final or study not in (None, job.spec.study):
                continue
            if self.stays(held, job, now_seconds):
                found.append(held)
        return found

    def soon_free(
        self, alive: Iterable[HeldInstance], now_seconds: float, study: str
    ) -> list[HeldInstance]:
        """Those of a study whose trials have ended, and whose jobs are about to."""
        found = []
        for held in alive:
            if ENDING_FACT not in held.facts or held.desired is Desired.ABSENT:
                continue
            job = self._store.jobs.get(held.job)
            left_seconds = start_seconds(held) - (now_seconds - float(held.facts[ENDING_FACT]))
            if job.spec.study == study and not job.phase.is_final and left_seconds > 0:
                found.append(held)
        return found

    def _has_money(self, job: JobRecord, now_seconds: float) -> bool:
        budget_usd = job.spec.objective.budget_usd
        if budget_usd is None:
            return True
        ledger = Ledger(self._store.ledger.entries(job.id))
        return ledger.spent(job.id, now_seconds) < budget_usd


def needs_light(job: JobRecord, instances: Iterable[HeldInstance]) -> bool:
    """Whether it needs a lighthouse that no launch has lit: its instances were another job's."""
    were_others = any(HANDED_OVER_FACT in held.facts for held in instances)
    return were_others and job.spec.instances.maximum > 1


def start_seconds(held: HeldInstance) -> float:
    """What this instance took from its launch to the first work it did for any job."""
    facts: Mapping[str, str] = held.facts
    if START_FACT in facts:
        return float(facts[START_FACT])
    if held.training_seconds is None or held.launched_seconds is None:
        return 0.0
    return held.training_seconds - held.launched_seconds
