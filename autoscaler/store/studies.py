"""What drivers state of their studies, and how the trials of these get on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord


class StudyBook(ABC):
    """The terms of the studies of one store, and the records of their trials."""

    @abstractmethod
    def state(self, study: str, terms: StudyTerms) -> None:
        """Let these be the terms of a study, in place of those before."""

    @abstractmethod
    def terms(self, study: str) -> StudyTerms | None:
        """The terms of a study; None before they were stated."""

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
        return TrialRecord(stands, now_seconds, trained)
    return record.told(stands, trained, now_seconds)
