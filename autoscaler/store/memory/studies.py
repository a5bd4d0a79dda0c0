"""Terms of studies and records of their trials, in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.studies import (
    StatedTerms,
    StudyBook,
    TermsCheck,
    accept_terms,
    after,
    unknown_study,
)


class MemoryStudyBook(StudyBook):
    """Records of trials by study and job, in order of their first statement."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = tables.lock
        self._stated: dict[str, StatedTerms] = {}
        self._records: dict[str, dict[str, TrialRecord]] = defaultdict(dict)

    def state(self, study: str, terms: StudyTerms, driver: str | None = None) -> None:
        with self._lock:
            self._tables.require_driver(study, driver)
            known = self._stated.get(study)
            self._stated[study] = StatedTerms(terms) if known is None else known.stated(terms)

    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._stated))

    def set_budget(
        self, study: str, budget_usd: Decimal, precondition: TermsCheck = accept_terms
    ) -> StudyTerms:
        with self._lock:
            if study not in self._stated:
                raise unknown_study(study)
            before = self._stated[study].in_force
            precondition(before)
            self._stated[study] = replace(self._stated[study], budget_usd=budget_usd)
            return before

    def terms(self, study: str) -> StudyTerms | None:
        known = self._stated.get(study)
        return None if known is None else known.in_force

    def tell(
        self,
        study: str,
        told: Iterable[tuple[TrialProgress, Allocation | None]],
        now_seconds: float,
        driver: str | None = None,
    ) -> None:
        statements = tuple(told)
        with self._lock:
            self._tables.require_driver(study, driver)
            for stands, _ in statements:
                self._tables.job(stands.job)
            records = self._records[study]
            for stands, trained in statements:
                known = records.get(stands.job)
                records[stands.job] = after(known, stands, trained, now_seconds)

    def trials(self, study: str) -> tuple[TrialRecord, ...]:
        with self._lock:
            return tuple(self._records.get(study, {}).values())
