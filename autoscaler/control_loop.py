"""Thread of the control loop: ticks, pauses, test writes to the store, and its health."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from autoscaler.clock import Clock
from autoscaler.loop_watch import LoopWatch

_log = logging.getLogger(__name__)

# After a tick the loop sleeps `_REST_FACTOR` times as long as the tick took, at most this or as
# long as the tick took, so that ticks after each report leave half of the time to requests.
_LONGEST_REST_SECONDS: Final = 0.2
_REST_FACTOR: Final = 4.0
_TEST_WRITE_SECONDS: Final = 10.0


class StoreTest:
    """Test write to a store every few seconds, and its last result."""

    def __init__(self, write: Callable[[], None], clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._tried_seconds = float("-inf")
        self._written_seconds: float | None = None
        self.error: str | None = None

    def repeat(self) -> None:
        """Write to the store if the last test is some time ago, and keep the error if it fails."""
        moment_seconds = self._clock.monotonic()
        if moment_seconds - self._tried_seconds < _TEST_WRITE_SECONDS:
            return
        self._tried_seconds = moment_seconds
        try:
            self._write()
        except Exception as error:  # the error is the result
            self.error = str(error) or type(error).__name__
        else:
            self._written_seconds, self.error = self._clock.monotonic(), None

    def age_seconds(self) -> float | None:
        """Return the time since the last write that succeeded; None before the first."""
        written_seconds = self._written_seconds
        return None if written_seconds is None else self._clock.monotonic() - written_seconds


@dataclass(frozen=True, slots=True)
class Pauses:
    """Longest pauses between two ticks: in general, and while an instance is ending."""

    tick_seconds: float
    listing_seconds: float


class ControlLoop:
    """Ticks until it is stopped: at each wake-up, and at least every `tick_seconds`.

    `tick` returns whether an instance is ending, so that the next listing is of interest.
    """

    def __init__(
        self,
        tick: Callable[[], bool],
        pauses: Pauses,
        clock: Clock,
        watch: LoopWatch,
        store_test: StoreTest,
    ) -> None:
        self._tick = tick
        self._pauses = pauses
        self._clock = clock
        self._watch = watch
        self._store_test = store_test
        self.wake = threading.Event()

    def run(self, stopped: threading.Event, may_tick: Callable[[], bool] = lambda: True) -> None:
        """Tick until `stopped` is set, or until `may_tick`, asked before each tick, is False."""
        while not stopped.is_set():
            self.wake.clear()
            began_seconds = self._clock.monotonic()
            self._watch.begin()
            pause_seconds: float | None = self._pauses.tick_seconds
            succeeded = False
            try:
                pause_seconds = self._turn(may_tick)
                succeeded = True
            except Exception:  # the loop goes on: the next tick reconciles from the stored state
                _log.exception("a tick failed")
            finally:
                self._watch.end(succeeded)
            if pause_seconds is None:
                return
            took_seconds = self._clock.monotonic() - began_seconds
            longest_seconds = max(_LONGEST_REST_SECONDS, took_seconds)
            stopped.wait(min(_REST_FACTOR * took_seconds, longest_seconds))
            self.wake.wait(pause_seconds)

    def _turn(self, may_tick: Callable[[], bool]) -> float | None:
        """Tick once; return the longest pause until the next tick, None to end the loop."""
        if not may_tick():
            return None
        awaits_end = self._tick()
        self._store_test.repeat()
        pauses = self._pauses
        if awaits_end:
            return min(pauses.tick_seconds, pauses.listing_seconds)
        return pauses.tick_seconds
