"""Receipts of jobs, from the ledger and the counted use of time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.sessions import is_without_session
from autoscaler.controller.predict.counterfactual import (
    RULE_TITLES,
    Alternative,
    counterfactual,
)
from autoscaler.domain.access import Identity
from autoscaler.domain.instance import HeldInstance, by_job
from autoscaler.domain.job import JobRecord
from autoscaler.domain.job_names import meant_job
from autoscaler.domain.time_use import CostCategory, LostWork, TimeCount
from autoscaler.economics.forecasts.forecast import Range
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.receipt import (
    CostSplit,
    TimeRecord,
    receipt,
    shared_count,
)
from autoscaler.store.store import Store
from autoscaler.wire.cost_messages import (
    AlternativeView,
    BandView,
    CategoryView,
    CostSplitView,
    CounterfactualView,
    ReceiptView,
    RunsTotalView,
)


class Receipts:
    """Builder of receipts from the store."""

    def __init__(self, store: Store, status: ControllerStatus) -> None:
        self._store = store
        self._status = status

    def meant(self, name: str, identity: Identity) -> JobRecord:
        """Return the job that an identity means by a name or an id.

        Raises:
            UnknownJob: there is no such job.
        """
        return meant_job(self._store.jobs.named(name), identity)

    def counterfactual(self, job: JobRecord, now_seconds: float) -> CounterfactualView:
        """Return what other rules would have paid for the job's progress until now.

        Raises:
            Conflict: the job has no progress yet, or no decision with kept inputs.
        """
        replayed = counterfactual(self._store, job, now_seconds)
        ledger = Ledger(self._store.ledger.entries(job.id))
        ended_seconds = now_seconds if job.ended_seconds is None else job.ended_seconds
        return CounterfactualView(
            job=job.id,
            billed_usd=ledger.spent(job.id, now_seconds),
            billed_seconds=ended_seconds - job.submitted_seconds,
            examples=replayed.examples,
            moments=replayed.moments,
            lost=replayed.lost,
            alternatives=tuple(
                _alternative_view(alternative) for alternative in replayed.alternatives
            ),
        )

    def of(self, job: JobRecord, now_seconds: float) -> ReceiptView:
        """Return the receipt of a job until now."""
        return self._made(job, now_seconds)[0]

    def _made(self, job: JobRecord, now_seconds: float) -> tuple[ReceiptView, CostSplit]:
        """Return the receipt of a job, and its sums."""
        bills = Ledger(self._store.ledger.entries(job.id)).bills
        lost_work = self._store.time_uses.lost_work(job.id)
        instances = self._store.instances.of_job(job.id, include_ended=True)
        counts = self._store.time_uses.of_job(job.id)
        records = time_records(job, instances, counts, now_seconds)
        made = receipt(job.id, bills, records, lost_work, now_seconds)
        useful_examples = None
        if job.report is not None:
            begun_examples = self._store.jobs.progress_before(job)
            useful_examples = max(job.report.progress_examples - begun_examples, 0.0)
        view = ReceiptView(
            job=job.id,
            is_final=job.phase.is_final and not self._store.instances.of_job(job.id),
            whole=split_view(made.whole),
            by_offer={offer: split_view(split) for offer, split in made.by_offer.items()},
            lost_steps=sum(work.steps for work in lost_work),
            useful_examples=useful_examples,
        )
        return view, made.whole

    def with_earlier_runs(self, job: JobRecord, now_seconds: float) -> ReceiptView:
        """Return the receipt of a job, with sums over the runs that it goes on from, if any."""
        view, total = self._made(job, now_seconds)
        *earlier, _ = self._store.jobs.runs_until(job)
        if not earlier:
            return view
        bills = Ledger(self._store.ledger.of_jobs([run.id for run in earlier])).bills
        facts = time_facts(self._store, earlier, now_seconds)
        for run in facts:
            total += receipt(run, bills, *facts[run], now_seconds).whole
        reports = [run.report for run in (*earlier, job) if run.report is not None]
        progress = reports[-1].progress_examples if reports else None
        runs = RunsTotalView(len(earlier) + 1, split_view(total), progress)
        return replace(view, all_runs=runs)

    def billed_seconds(self, job: JobRecord, now_seconds: float) -> Mapping[str, float]:
        """Return the billed seconds of a job's instances until now, by category."""
        parts = self.of(job, now_seconds).whole.parts
        return {part.category.value: part.seconds for part in parts}


def time_facts(
    store: Store, jobs: Collection[JobRecord], now_seconds: float
) -> Mapping[str, tuple[Mapping[str, TimeRecord], tuple[LostWork, ...]]]:
    """Return the `time_records` and the lost work of some jobs, by job, from a few statements."""
    ids = {job.id for job in jobs}
    alive = by_job(held for held in store.instances.alive() if held.job in ids)
    ended = store.instances.ended_of_jobs(ids)
    counts, lost_work = store.time_uses.of_jobs(ids), store.time_uses.lost_work_of_jobs(ids)
    facts = {}
    for job in jobs:
        instances = {held.id: held for held in alive.get(job.id, ())}
        # One that ended between the two reads is in both.
        instances |= {held.id: held for held in ended.get(job.id, ())}
        in_order = sorted(instances.values(), key=lambda held: (held.requested_seconds, held.id))
        records = time_records(job, in_order, counts[job.id], now_seconds)
        facts[job.id] = records, lost_work[job.id]
    return facts


def time_records(
    job: JobRecord,
    instances: Collection[HeldInstance],
    counts: Mapping[str, TimeCount],
    now_seconds: float,
) -> Mapping[str, TimeRecord]:
    """Return what is known of the time of each instance that a job has held.

    Args:
        job: the job.
        instances: all instances of the job so far, by time of request.
        counts: the last counts for the job, by instance.
        now_seconds: the time until which instances that still run are counted.
    """
    records = {instance: TimeRecord(count) for instance, count in counts.items()}
    is_sessionless = is_without_session(job, instances)
    leaders = {
        held.seat.number: counts[held.id]
        for held in instances
        if held.seat is not None and held.id in counts
    }
    for held in instances:
        if is_sessionless:
            records[held.id] = TimeRecord(None, held.unopened_seconds)
        elif held.id not in counts:
            leader = None if held.seat is None else leaders.get(held.seat.number)
            records[held.id] = _uncounted(held, leader, now_seconds)
    return records


def _uncounted(held: HeldInstance, leader: TimeCount | None, now_seconds: float) -> TimeRecord:
    """Return what is known of an instance whose agent does not count.

    A member of a gang that follows trains when the `leader` of its gang does.
    """
    trained_seconds = held.training_seconds
    begun_seconds = held.handed_over_seconds or held.launched_seconds
    if leader is None or trained_seconds is None or begun_seconds is None:
        return TimeRecord(None, trained_seconds, never_trained=trained_seconds is None)
    until_seconds = now_seconds if held.ended_seconds is None else held.ended_seconds
    count = shared_count(leader, begun_seconds, trained_seconds, until_seconds)
    return TimeRecord(count)


def split_view(split: CostSplit) -> CostSplitView:
    """Return a split as a message, with the share of each part."""
    has_unknown = CostCategory.UNKNOWN in split.parts
    names = [name for name in CostCategory if has_unknown or name is not CostCategory.UNKNOWN]
    parts = tuple(
        CategoryView(name, split.part(name).seconds, split.part(name).usd, _share(split, name))
        for name in names
    )
    return CostSplitView(split.usd, split.billed_seconds, split.productive_share, parts)


def _share(split: CostSplit, category: CostCategory) -> float:
    part = split.part(category)
    if split.usd:
        return float(part.usd / split.usd)
    return part.seconds / split.billed_seconds if split.billed_seconds else 0.0


def _alternative_view(alternative: Alternative) -> AlternativeView:
    return AlternativeView(
        alternative.name,
        _band(alternative.usd),
        _band(alternative.seconds),
        alternative.allocation,
        alternative.problem,
        RULE_TITLES.get(alternative.name, alternative.name),
    )


def _band(values: Range | None) -> BandView | None:
    return None if values is None else BandView(values.median, values.low, values.high)
