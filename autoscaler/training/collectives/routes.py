"""Route of a bucket: the collectives that sum it over all ranks of a job, as a pure function.

Devices of an instance have fast links, and each device has its own path to other instances: on
machines with eight GPUs its own network card. If all instances have equally many ranks, each rank
therefore sums its own *shard* of a bucket over the instances. Otherwise the leaders sum the whole
bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Collective(StrEnum):
    """Collective operation of a group of ranks."""

    ALL_REDUCE = "all-reduce"
    REDUCE = "reduce"
    BROADCAST = "broadcast"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"


class Scope(StrEnum):
    """Ranks of a collective: those of an instance, or those of one number in all instances."""

    INSTANCE = "instance"
    RAIL = "rail"


@dataclass(frozen=True, slots=True)
class Leg:
    """One collective of a route, on the whole bucket or on this rank's shard.

    A reduce-scatter ends with the shard, and an all-gather begins with it.
    """

    collective: Collective
    scope: Scope
    on_shard: bool = False


_ROUTE_BY_LEADERS: Final = (
    Leg(Collective.REDUCE, Scope.INSTANCE),
    Leg(Collective.ALL_REDUCE, Scope.RAIL),
    Leg(Collective.BROADCAST, Scope.INSTANCE),
)
_ROUTE_BY_RAILS: Final = (
    Leg(Collective.REDUCE_SCATTER, Scope.INSTANCE, on_shard=True),
    Leg(Collective.ALL_REDUCE, Scope.RAIL, on_shard=True),
    Leg(Collective.ALL_GATHER, Scope.INSTANCE, on_shard=True),
)


def can_use_rails(ranks_by_instance: Sequence[int]) -> bool:
    """Return whether each rank has a counterpart in all other instances to sum shards with."""
    return len(ranks_by_instance) > 1 and len({*ranks_by_instance}) == 1 < ranks_by_instance[0]


def route(
    ranks_by_instance: Sequence[int], instance: int, local_rank: int, has_rails: bool
) -> tuple[Leg, ...]:
    """Return the collectives that one rank takes part in, in order.

    Args:
        ranks_by_instance: number of ranks of each instance.
        instance: index of the rank's own instance.
        local_rank: the rank's number in its instance; 0 is the leader.
        has_rails: whether all ranks of the job can sum with their counterparts, not only leaders.
    """
    local_ranks = ranks_by_instance[instance]
    if len(ranks_by_instance) == 1:
        return (Leg(Collective.ALL_REDUCE, Scope.INSTANCE),) if local_ranks > 1 else ()
    if has_rails and can_use_rails(ranks_by_instance):
        return _ROUTE_BY_RAILS
    return tuple(
        leg
        for leg in _ROUTE_BY_LEADERS
        if (leg.scope is Scope.RAIL and local_rank == 0)
        or (leg.scope is Scope.INSTANCE and local_ranks > 1)
    )


def shard_length(length: int, local_ranks: int) -> int:
    """Return the shard length for `length` numbers: equal on all ranks, rounded up."""
    return -(-length // local_ranks)
