"""Spending of jobs, of studies and of the whole fleet, read from the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store

_SECONDS_PER_HOUR = 3600
# The whole ledger is summed this often; in between the prices of the held instances are added.
_FLEET_SECONDS = 30.0


@dataclass(slots=True)
class _Sums:
    """Sums kept between reads, shared by threads: values are replaced and never changed.

    `fleet` is the total of the ledger in US dollars, and the time at which it was summed.
    """

    jobs_by_study: dict[str, set[str]] = field(default_factory=dict)
    usd_by_ended: dict[str, Decimal] = field(default_factory=dict)
    fleet: tuple[Decimal, float] = (Decimal(0), float("-inf"))


class Spending:
    """Costs up to a time, in US dollars.

    The sum of an ended trial is cached. Later ledger entries of an ended trial, such as the last
    part of its log, are not included in its study.
    """

    def __init__(self, store: Store, sums: _Sums | None = None) -> None:
        self._store = store
        self._sums = sums or _Sums()
        self._ledgers: dict[str, Ledger] | None = None

    @contextmanager
    def each_ledger_once(self) -> Iterator[None]:
        """Read the ledger of each job from the store at most once until the context ends."""
        self._ledgers = {}
        try:
            yield
        finally:
            self._ledgers = None

    def always_fresh(self) -> Spending:
        """Return the same spending, read from the store each time, also within a tick."""
        return Spending(self._store, self._sums)

    def ledger(self, job: str) -> Ledger:
        """Return the ledger of one job."""
        ledgers = {} if self._ledgers is None else self._ledgers
        if job not in ledgers:
            ledgers[job] = Ledger(self._store.ledger.entries(job))
        return ledgers[job]

    def of_job(self, job: str, now_seconds: float) -> Decimal:
        """Return the cost of a job."""
        return self.ledger(job).spent(job, now_seconds)

    def of_study(
        self,
        study: str,
        alive: Sequence[JobRecord],
        now_seconds: float,
        trials: Iterable[str] = (),
    ) -> Decimal:
        """Return the cost of all trials of a study.

        `alive` are the jobs that have not ended. `trials` are jobs of the study that may have
        started and ended since the last call; the control loop sees each job before it ends.
        """
        by_study = self._sums.jobs_by_study
        if study not in by_study:
            by_study[study] = {job.id for job in self._store.jobs.all() if job.spec.study == study}
        at_work = {job.id for job in alive if job.spec.study == study}
        jobs = by_study[study] = by_study[study] | at_work | set(trials)
        return sum((self._of_trial(job, job in at_work, now_seconds) for job in jobs), Decimal(0))

    def of_fleet(self, held: Sequence[HeldInstance], now_seconds: float) -> Decimal:
        """Return the cost of all jobs; `held` are all instances that cost money now."""
        usd, summed_seconds = self._sums.fleet
        since_seconds = now_seconds - summed_seconds
        if since_seconds >= _FLEET_SECONDS:
            usd = Ledger(self._store.ledger.entries()).total(now_seconds)
            self._sums.fleet, since_seconds = (usd, now_seconds), 0.0
        return usd + cost_usd(held, max(since_seconds, 0.0))

    def forget(self, studies: Collection[str]) -> None:
        """Drop the sums of all studies but `studies`; a later call reads them again."""
        by_study = {
            study: jobs for study, jobs in self._sums.jobs_by_study.items() if study in studies
        }
        kept = set().union(*by_study.values())
        usd_by_ended = self._sums.usd_by_ended
        self._sums.usd_by_ended = {job: usd_by_ended[job] for job in usd_by_ended.keys() & kept}
        self._sums.jobs_by_study = by_study

    def _of_trial(self, job: str, is_alive: bool, now_seconds: float) -> Decimal:
        by_ended = self._sums.usd_by_ended
        if job in by_ended:
            return by_ended[job]
        ledger = self.ledger(job)
        spent_usd = ledger.spent(job, now_seconds)
        if not is_alive and not ledger.rate_usd_per_hour(now_seconds, job):
            by_ended[job] = spent_usd
        return spent_usd


def cost_usd(held: Sequence[HeldInstance], seconds: float) -> Decimal:
    """Return the cost of some instances for `seconds` from now, in US dollars."""
    usd_per_hour = sum((instance.costing_usd_per_hour for instance in held), Decimal(0))
    return usd_per_hour * Decimal(seconds) / _SECONDS_PER_HOUR
