"""Which collectives sum a bucket of gradients over all ranks of a job: a pure plan.

Within an instance devices are joined by fast links, and each device has its own way to the devices
of other instances: on machines with eight GPUs a network card of its own. Where all instances have
as many ranks, each rank therefore sums its own *shard* of a bucket over the instances. Elsewhere
the leaders sum the whole of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Collective(StrEnum):
    """What a group of ranks does together."""

    ALL_REDUCE = "all-reduce"
    REDUCE = "reduce"
    BROADCAST = "broadcast"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"


class Scope(StrEnum):
    """Which ranks: those of one instance, or those with the same number in all instances."""

    INSTANCE = "instance"
    RAIL = "rail"


@dataclass(frozen=True, slots=True)
class Leg:
    """One collective of a route, on the whole bucket or on this rank's shard of it.

    A reduce-scatter ends, and an all-gather begins, with the shard.
    """

    collective: Collective
    scope: Scope
    on_shard: bool = False


_LEADERS_WAY: Final = (
    Leg(Collective.REDUCE, Scope.INSTANCE),
    Leg(Collective.ALL_REDUCE, Scope.RAIL),
    Leg(Collective.BROADCAST, Scope.INSTANCE),
)
_BY_RAILS: Final = (
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
        ranks_by_instance: the number of ranks of each instance.
        instance: which of them is the rank's own.
        local_rank: the rank's number in its instance; 0 leads.
        has_rails: all ranks of the job can sum with their counterparts, not the leaders alone.
    """
    local_ranks = ranks_by_instance[instance]
    if len(ranks_by_instance) == 1:
        return (Leg(Collective.ALL_REDUCE, Scope.INSTANCE),) if local_ranks > 1 else ()
    if has_rails and can_use_rails(ranks_by_instance):
        return _BY_RAILS
    return tuple(
        leg
        for leg in _LEADERS_WAY
        if (leg.scope is Scope.RAIL and local_rank == 0)
        or (leg.scope is Scope.INSTANCE and local_ranks > 1)
    )


def shard_length(length: int, local_ranks: int) -> int:
    """Return the length of a shard of `length` numbers: equal on all ranks, rounded up."""
    return -(-length // local_ranks)
