"""End of a session: training is complete, the replica leaves, or the script fails."""

from __future__ import annotations

import os
from contextlib import suppress

from autoscaler.domain.errors import DeviceMemoryError, DivergedError
from autoscaler.domain.training import SOCKET_VARIABLE
from autoscaler.training.channel import tell_out_of_memory
from autoscaler.training.gradients.finite import MOST_SKIPPED_IN_A_ROW
from autoscaler.training.opening import Parts
from autoscaler.training.saving import CheckpointSchedule
from autoscaler.training.watch import Watch


class SessionEnd:
    """End of one session on one rank: last state, last report, and the message to the agent."""

    def __init__(self, parts: Parts, schedule: CheckpointSchedule, watch: Watch | None) -> None:
        self._parts = parts
        self._schedule = schedule
        self._watch = watch
        self._has_departed = False
        self._process = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the process that opened the session."""
        return os.getpid() != self._process

    def require_own_process(self) -> None:
        """Check that this process opened the session.

        Raises:
            RuntimeError: it was forked from the process that did.
        """
        if self.is_forked:
            raise RuntimeError(
                f"job: process {os.getpid()} was forked from process {self._process}, which has "
                "opened the session: train there alone, or fork before session"
            )

    @property
    def has_last_word(self) -> bool:
        """Whether this rank reports how the job ended: it decides, or no round has begun."""
        replica = self._parts.replica
        return replica.decides or not replica.has_begun

    def finish(self, is_complete: bool, stop_reason: str | None = None) -> None:
        """Save the state, report the end of the job, and leave. Do nothing in a forked process.

        Only the deciding replica reports the end of the job, after it has saved the state. The
        others report the end of their part.

        Args:
            is_complete: whether training has reached its total.
            stop_reason: why the script stopped training early; None if it did not.

        Raises:
            CheckpointError: under Castor, the state can't be saved: the job is not complete.
            DivergedError: no step has moved the model, or a weight is not finite.
        """
        if self.is_forked:
            return
        parts = self._parts
        parts.loader.close()
        try:
            parts.stepper.require_movement()
            if self._watch is None:
                self._schedule.save_last()
            if parts.reporter is not None:
                parts.reporter.report(is_due=True)
            if parts.channel is not None and self._watch is None:
                if self.has_last_word:
                    parts.channel.finished(is_complete, stop_reason)
                else:
                    parts.channel.done()
        except DivergedError:
            self._report_divergence()
            raise
        finally:
            self._depart()

    def leave(self, everyone_leaves: bool) -> None:
        """End this process at a step boundary; the job continues elsewhere, or later.

        `everyone_leaves`: whether all replicas leave, so that the state must be saved.

        Raises:
            SystemExit: always, at the end.
        """
        parts = self._parts
        parts.loader.close()
        try:
            self._schedule.save_last(is_wanted=everyone_leaves)
            if parts.reporter is not None:
                parts.reporter.report_steps()
            if parts.channel is not None:
                parts.channel.left()
        finally:
            self._depart()
        raise SystemExit(0)

    def abandon(self, error: BaseException, device_limit: int | None = None) -> None:
        """Leave after `error`, which the script raised or exits by.

        A last report is sent. Other ranks of the instance are not awaited, as they may never get
        here. Training that diverged is the exception: all ranks end at the same step, and the
        deciding replica saves the last finite weights.

        Args:
            error: the error that ends the script.
            device_limit: if memory ran out, the most examples per device for the next start.
        """
        if self._has_departed or self.is_forked:
            return
        if device_limit is not None or isinstance(error, DeviceMemoryError):
            # Report first: the end of another rank may end this one.
            self._report_shortage(device_limit)
        self._parts.loader.close()
        all_end_here = isinstance(error, DivergedError) and self._has_too_many_skipped
        if all_end_here and self._watch is None:
            self._schedule.save_last_finite()
        self._parts.wait_for_checkpoint()
        self._report_last()
        if isinstance(error, DivergedError):
            self._report_divergence()
        with suppress(RuntimeError):  # keep the script's error as the visible one
            self._depart(awaits_ranks=all_end_here)

    def close_at_exit(self) -> None:
        """Send the last report if the interpreter exits before the session is left."""
        if self.is_forked:
            return
        self._report_last()
        if self._parts.channel is not None:
            self._parts.channel.close()

    @property
    def _has_too_many_skipped(self) -> bool:
        """Whether too many steps in a row were skipped, equal on all ranks of the job."""
        return self._parts.state.counters.skipped_in_a_row >= MOST_SKIPPED_IN_A_ROW

    def _report_last(self) -> None:
        """Send a report; ignore a failure, which would hide why the script ends."""
        if self._parts.reporter is not None:
            with suppress(RuntimeError):
                self._parts.reporter.report(is_due=True)

    def _report_shortage(self, device_limit: int | None) -> None:
        """Report to the agent that memory ran out, by its socket on ranks without a channel."""
        path = os.environ.get(SOCKET_VARIABLE)
        if self._parts.channel is not None:
            self._parts.channel.out_of_memory(device_limit)
        elif path is not None:
            tell_out_of_memory(path, device_limit)

    def _report_divergence(self) -> None:
        if self._parts.channel is not None:
            self._parts.channel.diverged()

    def _depart(self, awaits_ranks: bool = True) -> None:
        """Close the channel and leave the job; `awaits_ranks`: after the instance's others."""
        self._has_departed = True
        parts = self._parts
        if parts.channel is not None:
            parts.channel.close()
        if parts.checkpoints is not None:
            parts.checkpoints.close()
        parts.job_ranks.leave(parts.reducer, awaits_ranks)
