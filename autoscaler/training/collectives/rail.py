"""Sums of gradient shards over the ranks with one number in all instances.

The leaders' sums are those of their `Peers`. Each other rank meets its counterparts in a world of
its own, beside that of the leaders: at the same store, and with the same end. A rank that gives
its world up so tells all ranks of all instances.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from autoscaler.training.collectives.instance import Instance
from autoscaler.training.collectives.routes import can_use_rails
from autoscaler.training.collectives.sums import Sums
from autoscaler.training.collectives.world import PendingSum

_log = logging.getLogger(__name__)


class Rail:
    """This rank's sums with its counterparts; `sums` are those of the peers on a leader.

    `is_used`: all instances have as many ranks, and each rank sums its own shard.
    """

    def __init__(self, instance: Instance, sums: Sums | None) -> None:
        self._instance = instance
        self._sums = sums
        self._worlds = 0
        self.is_used = False

    def follow_leader(self, ranks_by_instance: Sequence[int]) -> None:
        """Meet the counterparts where the leader has met its own, if rails can be used now.

        All ranks of all instances call it after each exchange.
        """
        sums = self._sums
        if self._instance.ranks == 1 or sums is None:
            return
        self.is_used = can_use_rails(ranks_by_instance)
        worlds = int(self._instance.from_leader([float(sums.worlds)])[0])
        if not self.is_used or worlds == self._worlds:
            return
        self._worlds = worlds
        meeting = self._instance.value_from_leader(sums.meeting)
        if meeting is None or self._instance.is_leader:
            return
        try:
            sums.enter(replace(meeting, rail=self._instance.rank))
        except RuntimeError as error:  # the step that follows is not committed
            _log.warning("a rank of another instance does not answer: %s", error)

    def gradients(self, tensor: Tensor) -> PendingSum:
        """Begin to sum `tensor` over the counterparts, in place; see `Sums.gradients`."""
        return self._sums.gradients(tensor) if self._sums is not None else PendingSum()

    def require_whole(self) -> None:
        """Let the leader's sums fail where a sum of another rank of its instance has failed."""
        if not self.is_used or self._sums is None:
            return
        fails = not self._instance.is_leader and not self._sums.are_whole()
        if self._instance.sum([float(fails)])[0] > 0 and self._instance.is_leader:
            self._sums.abandon()

    def close(self) -> None:
        """Close the connections of a rank that does not lead; the leader's are its peers'."""
        if self._sums is not None and not self._instance.is_leader:
            self._sums.close()
