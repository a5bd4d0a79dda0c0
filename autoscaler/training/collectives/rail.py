"""Sums of gradient shards over the ranks with the same number in all instances.

The leaders' sums are those of their `MembershipEngine`. Each other rank forms a separate world
with its counterparts, at the same store as the leaders' world, and with the same end. A rank that
gives its world up thereby notifies all ranks of all instances.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.collectives.routes import can_use_rails
from autoscaler.training.collectives.sums import Sums
from autoscaler.training.collectives.world import PendingSum

_log = logging.getLogger(__name__)


class Rail:
    """Sums of this rank with its counterparts; on a leader, `sums` are those of its peers.

    `is_used`: whether all instances have equally many ranks, and each rank sums its own shard.

    Args:
        instance: ranks of this instance.
        sums: sums of this rank over instances; None if there are no other instances.
        shards: number of ranks that hold one copy of a sharded model; None for a plain model.
            Instances may hold several copies, whose first ones have counterparts.
    """

    def __init__(
        self, instance: InstanceRanks, sums: Sums | None, shards: int | None = None
    ) -> None:
        self._instance = instance
        self._sums = sums
        self._shards = shards
        self._followed_worlds = 0
        self.is_used = False

    def follow_leader(self, ranks_by_instance: Sequence[int]) -> None:
        """Form a world with the counterparts at the leader's meeting point, if rails can be used.

        All ranks of all instances must call this after each exchange.
        """
        sums = self._sums
        if self._instance.ranks == 1 or sums is None:
            return
        if self._shards is None:
            self.is_used = can_use_rails(ranks_by_instance)
        else:
            self.is_used = len(ranks_by_instance) > 1
        worlds = int(self._instance.from_leader([float(sums.worlds)])[0])
        if not self.is_used or worlds == self._followed_worlds:
            return
        self._followed_worlds = worlds
        meeting = self._instance.value_from_leader(sums.meeting)
        has_counterparts = self._shards is None or self._instance.rank < self._shards
        if meeting is None or self._instance.is_leader or not has_counterparts:
            return
        try:
            sums.enter(replace(meeting, rail=self._instance.rank))
        except RuntimeError as error:  # the step that follows is not committed
            _log.warning("a rank of another instance does not answer: %s", error)

    def gradients(self, tensor: Tensor) -> PendingSum:
        """Start the sum of `tensor` over the counterparts, in place; see `Sums.gradients`."""
        return self._sums.gradients(tensor) if self._sums is not None else PendingSum()

    def require_whole(self) -> None:
        """Make the leader's sums fail if those of another rank of its instance have failed."""
        if not self.is_used or self._sums is None:
            return
        has_failed = not self._instance.is_leader and not self._sums.are_whole()
        if self._instance.sum([float(has_failed)])[0] > 0 and self._instance.is_leader:
            self._sums.abandon()

    def close(self) -> None:
        """Close the connections of a rank that is no leader; a leader's belong to its peers."""
        if self._sums is not None and not self._instance.is_leader:
            self._sums.close()
