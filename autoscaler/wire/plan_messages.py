"""The plan of a job that is not submitted yet, as the HTTP API has it."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective


@dataclass(frozen=True, slots=True)
class ProspectView:
    """A whole job: on `first`, and from `first_share` of its work on `then`, if that is another.

    `from_value_of_time_usd_per_hour` is where it begins to be the best; None if nowhere. In 90 %
    of cases it ends and costs within the bands, `seconds_band` and `usd_band`.
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
    """Price of one allocation, and its useful examples a second: median, and 90 % of draws.

    The examples are None where no step was measured there.
    """

    allocation: Allocation
    usd_per_hour: float
    examples_per_second: float | None
    examples_per_second_band: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class PlanView:
    """What a job that is not submitted yet would come to.

    `frontier` rises in cost and falls in time, `others` are all other allocations. `chosen` is
    where the objective lands; `chance` is that of keeping its deadline and budget, `shortfall`
    says why they can't be kept, and what could be. `decision` is the controller's first. `known`
    tells what all this is known from. Where nobody knows how much there is to do, `unknown` says
    so and how it becomes known, `rates` has prices, and the frontier is empty.
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
