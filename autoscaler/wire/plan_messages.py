"""Messages of the HTTP API about the plan of a job that is not submitted yet."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.shards import ShardChoice, UnfitOffer


@dataclass(frozen=True, slots=True)
class ProspectView:
    """Predicted time and cost of a whole job on given allocations.

    The job does the fraction `first_share` of its work on `first`, and the rest on `then`, which
    may be equal. The prospect is the best one from the value of time
    `from_value_of_time_usd_per_hour` on; None: for no value. `seconds` and `usd` are medians,
    `seconds_90` and `usd_90` quantiles. The bands contain 90 % of cases.
    """

    first: Allocation
    then: Allocation
    first_share: float
    seconds: float
    seconds_90: float
    usd: float
    usd_90: float
    from_value_of_time_usd_per_hour: float | None
    measured: bool
    seconds_band: tuple[float, float] | None = None
    usd_band: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class RateView:
    """Price of an allocation, and its useful examples per second: median, and band of 90 %.

    The examples are None if no step was measured on this allocation.
    """

    allocation: Allocation
    usd_per_hour: float
    examples_per_second: float | None
    examples_per_second_band: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class SubmissionPlan:
    """Job as a dry run would submit it, with the values that the deployment sets, and its plan."""

    spec: JobSpec
    plan: PlanView


@dataclass(frozen=True, slots=True)
class PlanView:
    """Predicted cost and duration of a job that is not submitted yet.

    Attributes:
        job: name of the job.
        objective: its objective.
        value_of_time_usd_per_hour: value of time that the objective stands for.
        frontier: prospects with rising cost and falling time.
        others: prospects of all other allocations.
        chosen: prospect that the objective chooses; None if the job's length is unknown.
        chance: probability of keeping deadline and budget; None without them.
        shortfall: why they can't be kept and what can; None if they can be kept.
        decision: first decision of the controller.
        known: sources of the prediction.
        unknown: why the job's length is unknown and how to set it; None if it is known.
        rates: prices and speeds, if the length is unknown; the frontier is empty then.
        unfit: permitted offers that can't hold the job.
        shards: comparison of the devices that may hold a copy of the model; None if one is stated.
    """

    job: str
    objective: Objective
    value_of_time_usd_per_hour: float
    frontier: tuple[ProspectView, ...]
    others: tuple[ProspectView, ...]
    chosen: ProspectView | None
    chance: float | None
    shortfall: str | None
    decision: str
    known: str
    unknown: str | None = None
    rates: tuple[RateView, ...] = ()
    unfit: tuple[UnfitOffer, ...] = ()
    shards: ShardChoice | None = None
