"""The rounds of a session: what its ranks agree on at the start of each is done by its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from autoscaler.training.departure import Departure
from autoscaler.training.members.rounds import Agreement
from autoscaler.training.opening import Parts
from autoscaler.training.saving import CheckpointSchedule
from autoscaler.training.session_steps import Steps


class SessionRounds:
    """One session's rounds, on one rank.

    `is_watched`: the session is part of something else, which saves where all replicas leave.
    """

    def __init__(
        self,
        parts: Parts,
        steps: Steps,
        schedule: CheckpointSchedule,
        departure: Departure,
        is_watched: bool,
    ) -> None:
        self._parts = parts
        self._steps = steps
        self._schedule = schedule
        self._departure = departure
        self._is_watched = is_watched
        self._owed: Agreement | None = None
        self._is_open = False
        parts.crew.is_interrupted = self._is_interrupted

    def open(self) -> None:
        """Begin a round, unless one is open."""
        owed, self._owed = self._owed, None
        if owed is not None:
            self._carry_out(owed)
        if not self._is_open:
            self._parts.replica.begin_round()
            self._is_open = True

    def batches(self, is_over: Callable[[], bool]) -> Iterator[Any]:
        """Yield the batches of the open round's steps, until training or an epoch `is_over`."""
        for _ in range(self._parts.replica.agreement.steps):
            yield from self._steps.batches()
            if not self._steps.committed or is_over() or self._parts.replica.ends_round:
                return

    def close(self, ends_epoch: bool) -> None:
        """Do what is done between rounds: times, checkpoint, report, and what the agent says."""
        parts = self._parts
        agreement = parts.replica.agreement
        if ends_epoch:
            parts.replica.begin_evaluation()
        parts.replica.end_round()
        self._is_open = False
        if agreement.saves_checkpoint and self._steps.committed:
            parts.replica.share_buffers()
        if parts.reporter is not None:
            parts.reporter.report()
        if ends_epoch:
            self._owe(agreement)
        else:
            self._carry_out(agreement)
        if parts.channel is not None:
            directive = parts.channel.directive
            parts.replica.leaves = directive.drain
            parts.replica.throughput = directive.throughput
        parts.replica.wants_checkpoint = self._schedule.is_due

    def _is_interrupted(self) -> bool:
        """Whether the present round should end: to leave, stop, save, or as it lasts long."""
        channel, replica = self._parts.channel, self._parts.replica
        leaves = channel is not None and channel.directive.drain
        saves = replica.decides and self._schedule.is_due
        return leaves or saves or replica.stop.is_heard or replica.is_round_overdue

    def _owe(self, agreement: Agreement) -> None:
        """Carry out after the code that follows the epoch what was agreed on for its end.

        What that code changes, such as a best metric, is then in the checkpoint. Where all
        replicas leave, the state is saved before it, too, in case that there is no time left.
        """
        self._owed = agreement
        leaves = agreement.everyone_leaves and self._parts.replica.decides
        if leaves and not self._is_watched:
            self._schedule.save(at_once=False)

    def _carry_out(self, agreement: Agreement) -> None:
        """Save or leave, as was agreed on for the end of a round."""
        if agreement.saves_checkpoint and self._parts.replica.decides:
            self._schedule.save(at_once=False)
        if agreement.we_leave:
            self._departure.leave(agreement.everyone_leaves)
