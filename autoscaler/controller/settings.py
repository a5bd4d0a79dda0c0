"""How patient the controller is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.market.prices import Discount


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """All in seconds, but for the fleet's cap.

    Attributes:
        replan_seconds: plan at least this often, also when nothing has happened.
        replan_on_news: plan also as soon as something has happened.
        listing_seconds: ask the clouds for their instances at most this often, and about a
            tenth of the time, but at least once a minute.
        join_seconds: how long an instance may take from launch to its agent's first word.
        silence_seconds: an agent not heard of for this long is given up, its instance replaced.
        drain_seconds: how long a script may always take to leave; it has longer where its steps
            or checkpoints are long (`controller.leaving`).
        orphan_seconds: the least age at which an instance that nobody ordered is ended.
        completion_seconds: how long other replicas may go on after one has completed the job.
        unknown_launch_seconds: an unwanted launch whose outcome is not known is dropped once
            complete listings have not shown its instance for this long.
        vanished_seconds: an instance that complete listings leave out for this long has ended.
        keep_seconds: how long decisions with their inputs, and events, are kept.
        fleet_usd_per_hour: what all instances together may cost an hour.
        fleet_usd: what all jobs together may ever cost.
        job_usd: the budget of a job, outside of studies, that names none. None: none.
        study_usd: the budget of a study that names none. None: none.
        shares: user -> share of what is scarce; who is not named has 1. Empty: no user counts.
        discounts: what was agreed on with providers, the first that covers an offer first.
        observes: plan and tell what would be done, and buy and give back nothing.
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
    fleet_usd_per_hour: float | None = None
    fleet_usd: Decimal | None = None
    job_usd: Decimal | None = None
    study_usd: Decimal | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    discounts: tuple[Discount, ...] = ()
    observes: bool = False
