"""Studies as a policy sees them, put together from the store."""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.controller.lingering import Lingering
from autoscaler.controller.study_spending import StudySpending
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.snapshot import FreeInstance, StudySnapshot
from autoscaler.store.store import Store

# What more siblings than that could teach is not worth what it takes to learn it.
_MOST_TRIALS = 300


class StudySnapshots:
    """Takes snapshots of studies."""

    def __init__(self, store: Store, lingering: Lingering) -> None:
        self._store = store
        self._lingering = lingering
        self._spending = StudySpending(store)

    def take(
        self, jobs: Sequence[JobRecord], alive: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[StudySnapshot, ...]:
        """The studies of these jobs whose terms were stated; `alive` are all instances."""
        names = sorted({job.spec.study for job in jobs if job.spec.study is not None})
        found = []
        for name in names:
            terms = self._store.studies.terms(name)
            if terms is None:
                continue
            found.append(
                StudySnapshot(
                    name=name,
                    terms=terms,
                    trials=self._store.studies.trials(name)[-_MOST_TRIALS:],
                    free=self._free(name, alive, now_seconds),
                    spent_usd=float(self._spending.spent(name, jobs, now_seconds)),
                )
            )
        return tuple(found)

    def _free(
        self, study: str, alive: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[FreeInstance, ...]:
        """What trials have left and others may take."""
        return tuple(
            FreeInstance(held.offer) for held in self._lingering.free(alive, now_seconds, study)
        )
