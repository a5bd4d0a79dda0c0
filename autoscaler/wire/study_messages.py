"""What passes between the controller, the drivers of studies and the agents of their trials."""

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
    """What the worker of trial `job` tells and asks, as its agent sends it on, in order."""

    incarnation: int
    calls: tuple[TrialCall, ...]
    job: str | None = None


@dataclass(frozen=True, slots=True)
class StudyLease:
    """A driver's wish to drive a study for so long from now."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    holder: str
    seconds: float


@dataclass(frozen=True, slots=True)
class StudyView:
    """A study, as people see it. `driver` is who drives it, None: nobody does.

    `terms` are None where none were stated: by a driver that has just begun. `trouble` is why the
    controller can't plan for it, or `spent_usd`, None then, can't be told.
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
    """What a person lets a study cost as a whole."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    budget_usd: Decimal


@dataclass(frozen=True, slots=True)
class StudyAnswers:
    """Answers of a study's driver to its trials; `ended` are the trials that end by them."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    holder: str
    answers: tuple[GivenAnswer, ...]
    ended: tuple[TrialEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class StudyStatement:
    """What the driver of a study states of it, and how its trials stand that changed."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    holder: str
    terms: StudyTerms
    trials: tuple[TrialProgress, ...] = ()
