"""Terms of studies, as their drivers state them, and records of their trials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import NotFound
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord


@dataclass(frozen=True, slots=True)
class StatedTerms:
    """Latest terms from the driver, and the budget that a person set since; None for no budget."""

    terms: StudyTerms
    budget_usd: Decimal | None = None

    @property
    def in_force(self) -> StudyTerms:
        """Terms with the budget of the person in place of the driver's, if one is set."""
        if self.budget_usd is None:
            return self.terms
        objective = replace(self.terms.objective, budget_usd=self.budget_usd)
        return replace(self.terms, objective=objective)

    def stated(self, terms: StudyTerms) -> StatedTerms:
        """Return the terms after the driver states new terms.

        The budget of the person stays unless the driver states another budget than before.
        """
        is_same = terms.objective.budget_usd == self.terms.objective.budget_usd
        return StatedTerms(terms, self.budget_usd if is_same else None)


TermsCheck = Callable[[StudyTerms], None]
"""Precondition of a change of a study's terms: it may raise an error."""


def accept_terms(terms: StudyTerms) -> None:
    """Accept any terms, as the precondition of a change."""


def unknown_study(study: str) -> NotFound:
    """Return the error for a study of which no terms are stored."""
    return NotFound(f"study {study} has no terms: start it with castor study run")


class StudyBook(ABC):
    """Terms of the studies of one store, and records of their trials."""

    @abstractmethod
    def state(self, study: str, terms: StudyTerms, driver: str | None = None) -> None:
        """Store the terms of a study in place of the earlier terms.

        If the terms have another budget than before, that budget replaces the one of
        `set_budget`.

        Raises:
            Conflict: `driver` is not None and was not the last to take the study's lease.
        """

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the names of all studies of which terms are stored, sorted."""

    @abstractmethod
    def set_budget(
        self, study: str, budget_usd: Decimal, precondition: TermsCheck = accept_terms
    ) -> StudyTerms:
        """Set the budget of a study in US dollars, in place of the budget in its terms.

        Return the terms in force before. Nothing is stored if `precondition` refuses these.

        Raises:
            NotFound: no terms of the study are stored.
        """

    @abstractmethod
    def terms(self, study: str) -> StudyTerms | None:
        """Return the terms in force for a study; None if no terms are stored."""

    @abstractmethod
    def tell(
        self,
        study: str,
        told: Iterable[tuple[TrialProgress, Allocation | None]],
        now_seconds: float,
        driver: str | None = None,
    ) -> None:
        """Store the progress of trials, each with the allocation that it trains on.

        Args:
            study: name of the study.
            told: pairs of progress and allocation; the allocation is None for no instances.
            now_seconds: time of the statement, in seconds since the epoch.
            driver: driver that states it; None for no check.

        Raises:
            UnknownJob: a trial is not a job.
            Conflict: `driver` was not the last to take the study's lease.
        """

    @abstractmethod
    def trials(self, study: str) -> tuple[TrialRecord, ...]:
        """Return the records of all trials of a study, by time of their first statement."""


def after(
    record: TrialRecord | None,
    stands: TrialProgress,
    trained: Allocation | None,
    now_seconds: float,
) -> TrialRecord:
    """Return the record of a trial after a new statement; `record` is None at the first."""
    if record is None:
        return TrialRecord.first(stands, trained, now_seconds)
    return record.told(stands, trained, now_seconds)
