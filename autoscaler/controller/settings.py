"""Timeouts, limits and default budgets of the controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.market.prices import Discount


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Timeouts in seconds, and limits on what the deployment may spend.

    Attributes:
        replan_seconds: the longest time between two plans, also without changes.
        replan_on_news: whether changes trigger a plan at once.
        listing_seconds: the shortest time between two listings of the clouds' instances. Slow
            listings are spaced so that they take a tenth of the time, but at most 60 s apart.
        join_seconds: the longest time from launch to the agent's first heartbeat, of offers that
            state none.
        silence_seconds: an instance without heartbeat for this long is given up and replaced.
        drain_seconds: the least time for a script to leave; jobs with long steps or checkpoints
            have more (`budgets.leave_limits`).
        orphan_seconds: the least age at which an orphan, an unknown instance, is terminated.
        completion_seconds: the longest time other replicas continue after one completed the job.
        unknown_launch_seconds: an unwanted launch of unknown outcome is dropped after complete
            listings have not shown its instance for this long.
        vanished_seconds: an instance missing from complete listings for this long has ended.
        keep_seconds: how long events, decisions with their inputs, and facts of ended jobs are
            kept (`Retention`).
        job_log_bytes: the limit on the logs of all instances of one job together.
        fleet_usd_per_hour: the limit on the hourly price of all instances; None for no limit.
        fleet_usd: the budget of all jobs together since the first instance; None for no limit.
        job_usd: the default budget of jobs outside studies; None for none.
        study_usd: the default budget of studies; None for none.
        shares: user -> share of scarce capacity; users not listed have 1. Empty: users do not
            count.
        discounts: discounts agreed on with providers; the first that covers an offer applies.
        observes: plan and report only, without launching or terminating.
    """

    replan_seconds: float = 10.0
    replan_on_news: bool = True
    listing_seconds: float = 1.0
    join_seconds: float = 600.0
    silence_seconds: float = 120.0
    drain_seconds: float = 90.0
    orphan_seconds: float = 60.0
    completion_seconds: float = 600.0
    unknown_launch_seconds: float = 120.0
    vanished_seconds: float = 600.0
    keep_seconds: float = 30 * 86400.0
    job_log_bytes: int = 10 << 30
    fleet_usd_per_hour: float | None = None
    fleet_usd: Decimal | None = None
    job_usd: Decimal | None = None
    study_usd: Decimal | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    discounts: tuple[Discount, ...] = ()
    observes: bool = False
