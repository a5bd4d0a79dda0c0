"""Spending of jobs, of studies and of the whole fleet, read from the ledger."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.spending import LedgerEntry
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store

_SECONDS_PER_HOUR = 3600
# The whole ledger is summed this often; in between the prices of the held instances are added.
_FLEET_SECONDS = 30.0


@dataclass(slots=True)
class _Sums:
    """Sums kept between reads, shared by threads.

    `usd_by_ended` has the sums of ended trials, and `payers` the trials among them by instance.
    They hold for the lines of the ledger up to `number`; None before its first read. `fleet` is
    the total of the ledger in US dollars, and the time at which it was summed.
    """

    jobs_by_study: dict[str, set[str]] = field(default_factory=dict)
    usd_by_ended: dict[str, Decimal] = field(default_factory=dict)
    payers: dict[str, set[str]] = field(default_factory=dict)
    number: int | None = None
    fleet: tuple[Decimal, float] = (Decimal(0), float("-inf"))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, lines: Iterable[LedgerEntry], number: int) -> None:
        """Drop the sums that new lines change; `number` is that after the lines."""
        with self.lock:
            for line in lines:
                for job in (line.job, *self.payers.pop(line.instance, ())):
                    self.usd_by_ended.pop(job, None)
            self.number = max(self.number or 0, number)

    def keep(self, job: str, usd: Decimal, instances: Iterable[str], number: int) -> None:
        """Keep the sum of an ended trial, unless lines after `number` may have changed it."""
        with self.lock:
            if number != self.number:
                return
            self.usd_by_ended[job] = usd
            for instance in instances:
                self.payers.setdefault(instance, set()).add(job)

    def forget_all_but(self, jobs: set[str]) -> None:
        """Drop the sums of ended trials other than `jobs`."""
        with self.lock:
            self.usd_by_ended = {job: usd for job, usd in self.usd_by_ended.items() if job in jobs}
            kept = {instance: paying & jobs for instance, paying in self.payers.items()}
            self.payers = {instance: paying for instance, paying in kept.items() if paying}


class Spending:
    """Costs up to a time, in US dollars.

    The sum of an ended trial is cached until the ledger has a new line of one of its instances:
    its log may be sent later, and a cloud may list an instance again that was taken for ended.
    """

    def __init__(self, store: Store, sums: _Sums | None = None) -> None:
        self._store = store
        self._sums = sums or _Sums()
        self._ledgers: dict[str, Ledger] | None = None
        self._number: int | None = None

    @contextmanager
    def each_ledger_once(self) -> Iterator[None]:
        """Read the ledger of each job from the store at most once until the context ends."""
        self._ledgers = {}
        try:
            yield
        finally:
            self._ledgers = self._number = None

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

        `alive` are the jobs that have not ended. `trials` are other jobs of the study.
        """
        by_study = self._sums.jobs_by_study
        if study not in by_study:
            by_study[study] = {job.id for job in self._store.jobs.of_study(study)}
        at_work = {job.id for job in alive if job.spec.study == study}
        number = self._last_line()
        jobs = by_study[study] = by_study[study] | at_work | set(trials)
        return sum(
            (self._of_trial(job, job in at_work, now_seconds, number) for job in jobs), Decimal(0)
        )

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
        kept: set[str] = set().union(*by_study.values())
        self._sums.forget_all_but(kept)
        self._sums.jobs_by_study = by_study

    def _last_line(self) -> int:
        """Return the number of the ledger's last line; drop the sums that new lines change."""
        if self._number is not None:
            return self._number
        known = self._sums.number
        lines, number = self._store.ledger.after(known or 0)
        if known is not None:
            self._add_trials({line.job for line in lines})
        self._sums.take(lines, number)
        if self._ledgers is not None:
            self._number = number
        return number

    def _add_trials(self, jobs: Iterable[str]) -> None:
        """Count jobs with a new line, which may have started and ended since the last call."""
        by_study = self._sums.jobs_by_study
        for job in jobs:
            study = self._store.jobs.get(job).spec.study
            if study is not None and study in by_study:
                by_study[study] = by_study[study] | {job}

    def _of_trial(self, job: str, is_alive: bool, now_seconds: float, number: int) -> Decimal:
        known_usd = self._sums.usd_by_ended.get(job)
        if known_usd is not None:
            return known_usd
        ledger = self.ledger(job)
        spent_usd = ledger.spent(job, now_seconds)
        if not is_alive and not ledger.is_open(job):
            self._sums.keep(job, spent_usd, ledger.by_instance(now_seconds), number)
        return spent_usd


def cost_usd(held: Sequence[HeldInstance], seconds: float) -> Decimal:
    """Return the cost of some instances for `seconds` from now, in US dollars."""
    usd_per_hour = sum((instance.costing_usd_per_hour for instance in held), Decimal(0))
    return usd_per_hour * Decimal(seconds) / _SECONDS_PER_HOUR
