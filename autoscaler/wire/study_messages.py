"""Messages of the HTTP API about studies, for drivers, users and agents of trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar

from pydantic import ConfigDict

from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.domain.trial import GivenAnswer, StopRequest, TrialCall, TrialEnd
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
    `version` changes with the objective, and is what `If-Match` takes; empty without terms.
    `stop` is the request that its driver ends it; None: there is none, or no driver runs.
    """

    name: str
    driver: str | None
    terms: StudyTerms | None
    trials: tuple[TrialRecord, ...]
    spent_usd: Decimal | None
    usd_per_hour: Decimal
    trouble: str | None = None
    version: str = ""
    stop: StopRequest | None = None


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


@dataclass(frozen=True, slots=True)
class StudySummary:
    """Line of a study in a list.

    `driver` is the holder of its lease; None if no driver runs. `directions` are minimize or
    maximize. `best` is the best first value so far. Trials are `running` while they hold
    instances, `waiting` before or between, and `ended`. `spent_usd` is None if the ledger can't
    tell. `trouble` and `stop` are as in `StudyView`.
    """

    name: str
    driver: str | None
    directions: tuple[str, ...]
    best: float | None
    running: int
    waiting: int
    ended: int
    spent_usd: Decimal | None
    usd_per_hour: Decimal
    budget_usd: Decimal | None
    deadline_seconds: float | None
    trouble: str | None = None
    stop: StopRequest | None = None


@dataclass(frozen=True, slots=True)
class RungView:
    """Trials at one progress at which they are compared or stopped, in the unit of their reports.

    `reached` trials have come there; of these `waiting` wait for others, and `stopped` ended
    before the next rung.
    """

    progress: float
    reached: int
    waiting: int
    stopped: int


@dataclass(frozen=True, slots=True)
class BestValueView:
    """Improvement of a study's best first value, by a report of the trial `job`.

    `trial` is the number of the trial whose end brought it; None: it was a report.
    """

    at_seconds: float
    spent_usd: float
    value: float
    job: str
    progress: float
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class StudyHistoryView:
    """Course of a study: its rungs, its best value by time and cost, and what it held.

    `times` are evenly spaced, since the Unix epoch. `instances` (all trials together),
    `usd_per_hour` and `spent_usd` have one value for each. `job_usd` is the cost of each job, in
    which several short trials may have run.
    """

    study: str
    times: tuple[float, ...]
    instances: tuple[int, ...]
    usd_per_hour: tuple[float, ...]
    spent_usd: tuple[float, ...]
    best: tuple[BestValueView, ...]
    rungs: tuple[RungView, ...]
    job_usd: Mapping[str, float] = field(default_factory=dict)
