"""Messages of the HTTP API about a submitted job's past and future: history, curve, outlook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from pydantic import ConfigDict

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Purchase
from autoscaler.domain.shards import UnfitOffer
from autoscaler.domain.size_bars import SizeBar
from autoscaler.wire.messages import FROM_PEOPLE, DecisionView, JobView


@dataclass(frozen=True, slots=True)
class CurvePointView:
    """Predicted goodput and price of one allocation, at the job's present noise scale.

    Attributes:
        allocation: the allocation.
        goodput: useful examples per second, as plans count them.
        goodput_band: band that contains 90 % of the model's draws.
        usd_per_hour: price, with refills after reclaims.
        usd_per_million_examples: price of progress, with the value of time.
        equal_goodput: goodput at which this price buys progress as dearly as the held allocation;
            more makes each example cheaper. None if nothing is held.
        goodput_ahead: goodput over the rest of the job, if the noise scale is expected to change.
        measured: whether step times of this size were measured.
        available: whether bounds, limits, refusals and budget permit it now.
        forbidden_by: what forbids it now; empty if it is available.
    """

    allocation: Allocation
    goodput: float
    goodput_band: tuple[float, float]
    usd_per_hour: float
    usd_per_million_examples: float
    equal_goodput: float | None
    goodput_ahead: float | None
    measured: bool
    available: bool
    forbidden_by: tuple[SizeBar, ...] = ()


@dataclass(frozen=True, slots=True)
class OfferCurveView:
    """Points of one offer, by rising number of instances."""

    offer: str
    device_kind: str
    purchase: Purchase
    points: tuple[CurvePointView, ...]


@dataclass(frozen=True, slots=True)
class MeasuredSizeView:
    """Best measured goodput of one size, in useful examples per second at the present noise scale.

    `batch` is the total batch in examples, and `steps` the decayed number of measured steps.
    """

    device_kind: str
    instances: int
    devices: int
    goodput: float
    batch: int
    steps: float


@dataclass(frozen=True, slots=True)
class CurveView:
    """Predicted goodput of a job against the number of instances of each offer.

    Attributes:
        job: id of the job.
        at_seconds: time of the prediction.
        offers: curves; those of offers in use, or weighed by the planner, come first.
        measured: best measured goodput of each size.
        held: point of the held allocation; None if nothing is held.
        candidate: point of the allocation to which the job changes, or else of the best
            alternative; None if there is none.
        decided: whether the last decision chose the candidate.
        decision: last decision; None before the first.
        value_of_time_usd_per_hour: value of time of the objective, its deadline and budget.
        noise_examples: present noise scale in examples; None if unknown.
        missing: why there is no curve; None if there is one.
        one_more_forbidden_by: what forbids one more instance than the held ones, if no point has
            that size; None: nothing.
        unfit: permitted offers that can't hold the job, for lack of memory or of devices.
    """

    job: str
    at_seconds: float
    offers: tuple[OfferCurveView, ...] = ()
    measured: tuple[MeasuredSizeView, ...] = ()
    held: CurvePointView | None = None
    candidate: CurvePointView | None = None
    decided: bool = False
    decision: DecisionView | None = None
    value_of_time_usd_per_hour: float | None = None
    noise_examples: float | None = None
    missing: str | None = None
    one_more_forbidden_by: SizeBar | None = None
    unfit: tuple[UnfitOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class QuantilesView:
    """Median, 90 % quantile, and band that contains 90 % of cases, of a predicted number."""

    median: float
    ninety_percent: float
    band: tuple[float, float]


@dataclass(frozen=True, slots=True)
class PlannedSizeView:
    """Allocation that a job is expected to hold from a time on; None for nothing."""

    from_seconds: float
    allocation: Allocation | None
    usd_per_hour: float


@dataclass(frozen=True, slots=True)
class OutlookView:
    """Predicted finish and cost of a job that has not ended.

    Attributes:
        at_seconds: time of the prediction.
        spent_usd: cost so far, as billed.
        finish_seconds: time of the end.
        total_usd: cost of the whole job.
        deadline_seconds: deadline; None without one.
        most_usd: upper bound of the cost: budget or default budget; None without one.
        sizes: expected allocations by time.
        value_of_time_usd_per_hour: value of time that the objective stands for.
        chance: probability of keeping deadline and budget; None without them.
        confidence: probability with which the owner wants to keep them; None without them.
        note: message about deadline and budget that can't be kept or judged; None: none.
        measured: whether step times of all planned allocations were measured.
        missing: why finish and cost can't be predicted; None if they are.
    """

    at_seconds: float
    spent_usd: Decimal
    finish_seconds: QuantilesView | None = None
    total_usd: QuantilesView | None = None
    deadline_seconds: float | None = None
    most_usd: Decimal | None = None
    sizes: tuple[PlannedSizeView, ...] = ()
    value_of_time_usd_per_hour: float | None = None
    chance: float | None = None
    confidence: float | None = None
    note: str | None = None
    measured: bool = False
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Changes of a job's objective to assume; None keeps a value.

    A value of time replaces the preference, and also the deadline unless one is given; 0 is the
    preference `cheapest`.
    `deadline_seconds` is since the Unix epoch. `maximum` is the most instances.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    value_of_time_usd_per_hour: float | None = None
    deadline_seconds: float | None = None
    budget_usd: Decimal | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """Outlook of a job under a hypothetical objective, beside that of its own objective."""

    job: str
    objective: Objective
    maximum: int
    present: OutlookView
    assumed: OutlookView


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """Job as a dry run would change it, and what the next plan would do with it.

    Attributes:
        job: the job with its changes.
        present: predicted finish and cost without the changes.
        changed: predicted finish and cost with them.
        decision: decision of the next plan, beside all other jobs; None if it can't be predicted.
        usd_per_hour: price of the instances of the decision; None without one.
        missing: why there is no decision; None if there is one.
    """

    job: JobView
    present: OutlookView
    changed: OutlookView
    decision: DecisionView | None = None
    usd_per_hour: Decimal | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Series of a job on one axis of evenly spaced `times`, one value for each.

    None: no report arrived since the time before, or it lacks the number.

    Attributes:
        job: id of the job.
        times: since the Unix epoch; the last is now, or the job's end.
        instances: number of held instances by offer.
        devices: devices in use on all instances.
        usd_per_hour: price of all held instances.
        spent_usd: cost so far; `JobView.spent_usd` has the exact sum.
        progress_examples: useful examples done.
        batch: total batch in examples.
        noise_examples: noise scale in examples.
        learning_rate: learning rate.
        loss: the metric that the script reports as `loss`.
        goodput: measured useful examples per second.
        decisions: decisions since the first time, the earliest first.
    """

    job: str
    times: tuple[float, ...]
    instances: Mapping[str, tuple[int, ...]]
    devices: tuple[int, ...]
    usd_per_hour: tuple[float, ...]
    spent_usd: tuple[float, ...]
    progress_examples: tuple[float | None, ...]
    batch: tuple[int | None, ...]
    noise_examples: tuple[float | None, ...]
    learning_rate: tuple[float | None, ...]
    loss: tuple[float | None, ...]
    goodput: tuple[float | None, ...]
    decisions: tuple[DecisionView, ...]
