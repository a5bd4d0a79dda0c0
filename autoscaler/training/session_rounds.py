"""Rounds of a session: the agreed checkpoint or leave is carried out at each round's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from autoscaler.training.departure import SessionEnd
from autoscaler.training.members.rounds import Agreement
from autoscaler.training.opening import Parts
from autoscaler.training.saving import CheckpointSchedule
from autoscaler.training.session_steps import Steps


class SessionRounds:
    """Rounds of one session, on one rank.

    `is_watched`: whether an enclosing task owns the session and saves when all replicas leave.
    """

    def __init__(
        self,
        parts: Parts,
        steps: Steps,
        schedule: CheckpointSchedule,
        departure: SessionEnd,
        is_watched: bool,
    ) -> None:
        self._parts = parts
        self._steps = steps
        self._schedule = schedule
        self._departure = departure
        self._is_watched = is_watched
        self._deferred: Agreement | None = None
        self._is_open = False
        parts.job_ranks.is_interrupted = self._is_interrupted
        if parts.channel is not None:
            parts.job_ranks.on_failed_sum = parts.channel.waits

    def open(self) -> None:
        """Begin a round unless one is open, after deferred actions of the last one."""
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            self._carry_out(deferred)
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
        """End the round: record times, save or leave as agreed, report, and read the directive."""
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
        self._schedule.prepare()
        if ends_epoch:
            self._defer(agreement)
        else:
            self._carry_out(agreement)
        if parts.channel is not None:
            directive = parts.channel.directive
            parts.replica.leaves = directive.drain
            parts.replica.throughput = directive.throughput
        parts.replica.wants_checkpoint = self._schedule.is_due

    def _is_interrupted(self) -> bool:
        """Return whether the round should end: to leave, stop or save, or as it is overdue."""
        channel, replica = self._parts.channel, self._parts.replica
        leaves = channel is not None and channel.directive.drain
        saves = replica.decides and self._schedule.is_due
        return leaves or saves or replica.stop.is_heard or replica.is_round_overdue

    def _defer(self, agreement: Agreement) -> None:
        """Defer the agreed actions until after the script's code that follows the epoch.

        Changes that this code makes, such as a best metric, are then in the checkpoint. If all
        replicas leave, the state is also saved now, in case that no time is left later.
        """
        self._deferred = agreement
        leaves = agreement.everyone_leaves and self._schedule.is_ours
        if leaves and not self._is_watched:
            self._schedule.save(at_once=False)

    def _carry_out(self, agreement: Agreement) -> None:
        """Save or leave, as agreed for the end of a round."""
        if agreement.saves_checkpoint and self._schedule.is_ours:
            self._schedule.save(at_once=False)
        if agreement.we_leave:
            self._departure.leave(agreement.everyone_leaves)
