"""Schedule of a session's checkpoints, and saving of the last state."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from autoscaler.clock import Clock
from autoscaler.domain.errors import CheckpointError, DivergedError
from autoscaler.training.opening import Parts

_log = logging.getLogger(__name__)

_SAVE_RETRY_SECONDS = 1.0
_LONGEST_SAVE_SECONDS = 3600.0


class CheckpointSchedule:
    """Checkpoints of one session, at the interval that the controller sets."""

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._saved_seconds = clock.monotonic()
        self._is_prepared = False

    @property
    def is_due(self) -> bool:
        """Whether the interval has passed since the last checkpoint."""
        return self._clock.monotonic() - self._saved_seconds >= self._interval_seconds

    @property
    def is_ours(self) -> bool:
        """Whether this rank saves: it is of the deciding replica, and writes a part of the state.

        Of a model that is not sharded, the leader holds all parts. Equal on all ranks that save
        together, as each of them must call `save` and `save_last`.
        """
        replica, checkpoints = self._parts.replica, self._parts.checkpoints
        has_part = replica.decides if checkpoints is None else checkpoints.has_part
        return has_part and replica.has_begun and replica.agreement.decides

    def prepare(self) -> None:
        """Prepare memory for the first checkpoint in the background, if this rank saves."""
        checkpoints = self._parts.checkpoints
        if not self._is_prepared and checkpoints is not None and self.is_ours:
            self._is_prepared = self._parts.state.reserve(checkpoints)

    def save(self, at_once: bool) -> None:
        """Save a checkpoint if there is a place for it: in the background, or `at_once`.

        Also writes the batch log to the job's outputs.

        Raises:
            DivergedError: a weight is not finite.
        """
        self._saved_seconds = self._clock.monotonic()
        if self._parts.checkpoints is not None:
            with self._declared(), self._paused():
                self._parts.state.save(self._parts.checkpoints, at_once)
        if self._parts.job_ranks.is_leader:
            self._write_batch_log()

    @contextmanager
    def _declared(self) -> Iterator[None]:
        """Declare the save as a phase, so that the job does not count as stalled meanwhile."""
        channel = self._parts.channel
        if channel is not None:
            channel.phase("checkpoint", _LONGEST_SAVE_SECONDS)
        try:
            yield
        finally:
            if channel is not None:
                channel.phase(None)

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Count the time of a save, or of the wait for one, as a pause of training."""
        began_seconds = self._clock.monotonic()
        try:
            yield
        finally:
            halts = self._parts.replica.halts
            halts.paused_seconds += self._clock.monotonic() - began_seconds

    def _write_batch_log(self) -> None:
        path = self._parts.batch_log_file
        if path is None:
            return
        try:
            partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
            partial.write_text(self._parts.state.batches.text)
            partial.rename(path)
        except OSError as error:
            _log.warning("the batch log is not written to %s: %s", path, error.strerror)

    def save_last(self, is_wanted: bool = True) -> None:
        """Save the state at the end of training if it `is_wanted` and ours to save.

        Otherwise wait for a running save.

        Raises:
            CheckpointError: saving has failed for `patience_seconds`. Raised under Castor only,
                which can start the job again.
            DivergedError: a weight is not finite.
        """
        parts, since_seconds = self._parts, self._clock.monotonic()
        if parts.checkpoints is None or not (is_wanted and self.is_ours):
            with self._paused():
                parts.wait_for_checkpoint()
            return
        self.save(at_once=True)
        while parts.checkpoints.status.step != parts.state.counters.step:
            # Only the leader has a channel, and the ranks' clocks differ.
            if parts.checkpoints.from_leader(parts.channel is None):
                return
            waited_seconds = parts.checkpoints.from_leader(self._clock.monotonic() - since_seconds)
            if waited_seconds >= parts.checkpoints.patience_seconds:
                raise CheckpointError(
                    f"the job's last state is not saved: {parts.checkpoints.status.error}"
                )
            self._clock.sleep(_SAVE_RETRY_SECONDS)
            self.save(at_once=True)

    def save_last_finite(self) -> None:
        """Save the state of a diverged training if it is ours to save, in one attempt.

        Skipped steps move no weight. If the newest checkpoint is as new as the last step that
        moved one, it has the same weights, and nothing is saved. A state that is not finite is
        logged and not saved.
        """
        checkpoints, counters = self._parts.checkpoints, self._parts.state.counters
        if checkpoints is None or not self.is_ours:
            return
        checkpoints.wait()
        if (checkpoints.status.step or 0) >= counters.step - counters.skipped_in_a_row:
            return
        try:
            self.save(at_once=True)
        except DivergedError as error:
            _log.warning("no checkpoint of the last finite weights: %s", error)

    @property
    def _interval_seconds(self) -> float:
        """Seconds between checkpoints: the controller's directive, or else the setup's value."""
        channel = self._parts.channel
        directed_seconds = (
            channel.directive.checkpoint_interval_seconds if channel is not None else None
        )
        return (
            self._parts.checkpoint_interval_seconds
            if directed_seconds is None
            else directed_seconds
        )
