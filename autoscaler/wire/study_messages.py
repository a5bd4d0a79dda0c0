"""Messages of the HTTP API about studies, for drivers, users and agents of trials."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from pydantic import ConfigDict

from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.domain.trial import GivenAnswer, TrialCall, TrialEnd
from autoscaler.wire.messages import FROM_PEOPLE


@dataclass(frozen=True, slots=True)
class TrialCalls:
    """Calls of the worker of trial `job`, in order, as its agent forwards them."""

    incarnation: int
    calls: tuple[TrialCall, ...]
    job: str | None = None


@dataclass(frozen=True, slots=True)
class StudyLease:
    """Request of the driver `holder` for a study's lease of this many seconds from now."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    holder: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StudyView:
    """State of a study. `driver` is the holder of its lease; None if no driver runs.

    `terms` are None before a driver has sent them. `spent_usd` is None if the ledger can't tell.
    `trouble` is the reason why the study can't be planned, or why `spent_usd` is unknown.
    """

    name: str
    driver: str | None
    terms: StudyTerms | None
    trials: tuple[TrialRecord, ...]
    spent_usd: Decimal | None
    usd_per_hour: Decimal
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class StudyBudget:
    """Budget of a whole study, set by a user."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    budget_usd: Decimal


@dataclass(frozen=True, slots=True)
class StudyAnswers:
    """Answers of a study's driver to its trials; `ended` are the trials that these end."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    holder: str
    answers: tuple[GivenAnswer, ...]
    ended: tuple[TrialEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class StudyStatement:
    """Terms of a study, and the progress of its trials that changed, sent by its driver."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    holder: str
    terms: StudyTerms
    trials: tuple[TrialProgress, ...] = ()
