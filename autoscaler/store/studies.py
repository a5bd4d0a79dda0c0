"""What drivers state of their studies, and how the trials of these get on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import NotFound
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord


@dataclass(frozen=True, slots=True)
class StatedTerms:
    """The terms that a driver stated last, and the budget that a person has set since."""

    terms: StudyTerms
    budget_usd: Decimal | None = None

    @property
    def in_force(self) -> StudyTerms:
        """The terms as they hold."""
        if self.budget_usd is None:
            return self.terms
        objective = replace(self.terms.objective, budget_usd=self.budget_usd)
        return replace(self.terms, objective=objective)

    def stated(self, terms: StudyTerms) -> StatedTerms:
        """After a driver has stated terms anew."""
        is_same = terms.objective.budget_usd == self.terms.objective.budget_usd
        return StatedTerms(terms, self.budget_usd if is_same else None)


def unknown_study(study: str) -> NotFound:
    """The error of whoever asks for a study that there is not."""
    return NotFound(f"study {study}: no driver has stated anything of it; castor study run does")


class StudyBook(ABC):
    """The terms of the studies of one store, and the records of their trials."""

    @abstractmethod
    def state(self, study: str, terms: StudyTerms) -> None:
        """Let these be the terms of a study, in place of those before.

        Another budget than was stated before takes the place of the one that was set.
        """

    @abstractmethod
    def set_budget(self, study: str, budget_usd: Decimal) -> None:
        """Let this be the budget of a study, whatever its driver states.

        Raises:
            NotFound: nothing was stated of it.
        """

    @abstractmethod
    def terms(self, study: str) -> StudyTerms | None:
        """The terms of a study as they hold; None before they were stated."""

    @abstractmethod
    def tell(
        self,
        study: str,
        told: Iterable[tuple[TrialProgress, Allocation | None]],
        now_seconds: float,
    ) -> None:
        """Take down how trials stand, and what each trains on.

        Raises:
            UnknownJob: one of them is no job.
        """

    @abstractmethod
    def trials(self, study: str) -> tuple[TrialRecord, ...]:
        """All that was told of the trials of a study, those that were told of first before."""


def after(
    record: TrialRecord | None,
    stands: TrialProgress,
    trained: Allocation | None,
    now_seconds: float,
) -> TrialRecord:
    """The record of a trial once it was told of, for the first time or again."""
    if record is None:
        return TrialRecord.first(stands, trained, now_seconds)
    return record.told(stands, trained, now_seconds)
