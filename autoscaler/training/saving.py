"""When a session saves a checkpoint, and the saving of a job's last state."""

from __future__ import annotations

import logging
import os

from autoscaler.clock import Clock
from autoscaler.domain.errors import CheckpointError, DivergedError
from autoscaler.training.opening import Parts

_log = logging.getLogger(__name__)

_SAVE_AGAIN_SECONDS = 1.0


class CheckpointSchedule:
    """Checkpoints of one session, at the interval that the controller asks for."""

    def __init__(self, parts: Parts, clock: Clock) -> None:
        self._parts = parts
        self._clock = clock
        self._saved_seconds = clock.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the interval has passed since the last checkpoint."""
        return self._clock.monotonic() - self._saved_seconds >= self._interval_seconds

    def save(self, at_once: bool) -> None:
        """Save the state, if it is kept anywhere: in the background, or `at_once`.

        Raises:
            DivergedError: a weight is not finite.
        """
        self._saved_seconds = self._clock.monotonic()
        if self._parts.checkpoints is not None:
            self._parts.state.save(self._parts.checkpoints, at_once)
        self._write_batch_log()

    def _write_batch_log(self) -> None:
        path = self._parts.batch_log_file
        if path is None:
            return
        try:
            partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
            partial.write_text(self._parts.state.batches.text)
            partial.rename(path)
        except OSError as error:
            _log.warning("no log of batches in %s: %s", path, error.strerror)

    def save_last(self, is_ours: bool) -> None:
        """Save the state that training ends with, if that `is_ours` to do.

        Raises:
            CheckpointError: under Castor, which can start the job again, if it fails for long.
            DivergedError: a weight is not finite.
        """
        parts, since_seconds = self._parts, self._clock.monotonic()
        if not is_ours or parts.checkpoints is None:
            parts.wait_for_checkpoint()
            return
        self.save(at_once=True)
        while parts.checkpoints.status.step != parts.state.counters.step:
            if parts.channel is None:
                return
            waited_seconds = self._clock.monotonic() - since_seconds
            if waited_seconds >= parts.checkpoints.patience_seconds:
                raise CheckpointError(
                    f"the job's last state is not saved: {parts.checkpoints.status.error}"
                )
            self._clock.sleep(_SAVE_AGAIN_SECONDS)
            self.save(at_once=True)

    def save_last_finite(self, is_ours: bool) -> None:
        """Save the state of a training that has diverged, if that `is_ours` to do.

        Skipped steps move no weight. A checkpoint that is as new as the last step that moved one
        has the same weights, and no other is saved. There is one attempt, which the timeouts of
        the storage bound. A state that is not finite is logged and not saved.
        """
        checkpoints, counters = self._parts.checkpoints, self._parts.state.counters
        if not is_ours or checkpoints is None:
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
        """The controller's present wish, or else that of this start."""
        channel = self._parts.channel
        wish = channel.directive.checkpoint_interval_seconds if channel is not None else None
        return self._parts.checkpoint_interval_seconds if wish is None else wish
