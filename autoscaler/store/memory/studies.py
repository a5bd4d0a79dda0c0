"""Terms of studies and records of their trials, in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.store.memory.tables import Tables
from autoscaler.store.studies import StudyBook, after


class MemoryStudyBook(StudyBook):
    """The records of each study by their jobs, in the order in which they came."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = tables.lock
        self._terms: dict[str, StudyTerms] = {}
        self._records: dict[str, dict[str, TrialRecord]] = defaultdict(dict)

    def state(self, study: str, terms: StudyTerms) -> None:
        with self._lock:
            self._terms[study] = terms

    def terms(self, study: str) -> StudyTerms | None:
        return self._terms.get(study)

    def tell(
        self,
        study: str,
        told: Iterable[tuple[TrialProgress, Allocation | None]],
        now_seconds: float,
    ) -> None:
        every = tuple(told)
        with self._lock:
            for stands, _ in every:
                self._tables.job(stands.job)
            records = self._records[study]
            for stands, trained in every:
                known = records.get(stands.job)
                records[stands.job] = after(known, stands, trained, now_seconds)

    def trials(self, study: str) -> tuple[TrialRecord, ...]:
        with self._lock:
            return tuple(self._records.get(study, {}).values())
