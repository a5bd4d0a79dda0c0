"""Studies as a policy sees them, put together from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from autoscaler.domain.job import JobRecord
from autoscaler.domain.snapshot import StudySnapshot
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store

# What more siblings than that could teach is not worth what it takes to learn it.
_MOST_TRIALS = 300


class StudySnapshots:
    """Takes snapshots of studies. What trials that have ended cost is remembered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spent: dict[str, Decimal] = {}

    def take(self, jobs: Sequence[JobRecord], now_seconds: float) -> tuple[StudySnapshot, ...]:
        """The studies of these jobs whose terms were stated, by name."""
        names = sorted({job.spec.study for job in jobs if job.spec.study is not None})
        every = self._store.jobs.all() if names else ()
        found = []
        for name in names:
            terms = self._store.studies.terms(name)
            if terms is None:
                continue
            own = [job for job in every if job.spec.study == name]
            found.append(
                StudySnapshot(
                    name=name,
                    terms=terms,
                    trials=self._store.studies.trials(name)[-_MOST_TRIALS:],
                    spent_usd=float(sum(self.spent(own, now_seconds).values(), Decimal(0))),
                    submitted_seconds=min(job.submitted_seconds for job in own),
                )
            )
        return tuple(found)

    def spent(self, jobs: Sequence[JobRecord], now_seconds: float) -> Mapping[str, Decimal]:
        """What each job has cost up to now."""
        spent = {}
        for job in jobs:
            if job.id in self._spent:
                spent[job.id] = self._spent[job.id]
                continue
            ledger = Ledger(self._store.ledger.entries(job.id))
            spent[job.id] = ledger.spent(job.id, now_seconds)
            if job.phase.is_final and not ledger.rate_usd_per_hour(now_seconds):
                self._spent[job.id] = spent[job.id]
        return spent
