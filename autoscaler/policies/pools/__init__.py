"""Placement on pools of fixed size, for policies that share machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoscaler.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from autoscaler.policies.pools.pool import Grant as Grant
    from autoscaler.policies.pools.pool import Pool as Pool
    from autoscaler.policies.pools.pool import Turns as Turns
    from autoscaler.policies.pools.pool import by_submission as by_submission
    from autoscaler.policies.pools.pool import gangs as gangs
    from autoscaler.policies.pools.pool import place as place
    from autoscaler.policies.pools.pool import plan_of as plan_of
    from autoscaler.policies.pools.pool import plan_of_placements as plan_of_placements
    from autoscaler.policies.pools.pool import pool_of as pool_of
    from autoscaler.policies.pools.pool import requested as requested

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "pool": (
            "Grant",
            "Pool",
            "Turns",
            "by_submission",
            "gangs",
            "place",
            "plan_of",
            "plan_of_placements",
            "pool_of",
            "requested",
        ),
    },
)
