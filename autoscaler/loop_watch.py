"""Watch over the control loop: its last tick, ticks that take too long, systemd's watchdog."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.clock import Clock

_log = logging.getLogger(__name__)

LONG_TICK_SECONDS: Final = 30.0
"""A tick that lasts longer is recorded, with the stack of the loop's thread."""
DEAD_SECONDS: Final = 120.0
"""A loop that neither began nor ended a tick for longer counts as dead."""
_CHECK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class LoopState:
    """State of a control loop.

    `quiet_seconds` is the time since the last begin or end of a tick. `tick_age_seconds` is the
    time since the end of the last tick that succeeded; None before the first.
    """

    quiet_seconds: float
    tick_age_seconds: float | None

    @property
    def is_alive(self) -> bool:
        """Whether the loop still ticks."""
        return self.quiet_seconds <= DEAD_SECONDS


class LoopWatch:
    """Record of a control loop's ticks.

    `on_long_tick` is called once for each tick that takes too long, in the thread of `run`, with
    a text that names the duration and the stack of the loop's thread.
    """

    def __init__(
        self,
        clock: Clock,
        on_long_tick: Callable[[str], None] = lambda text: None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._clock = clock
        self._on_long_tick = on_long_tick
        self._notify_address = environment.get("NOTIFY_SOCKET", "")
        self._moved_seconds = clock.monotonic()
        self._ticked_seconds: float | None = None
        self._thread: int | None = None  # of the tick that runs now
        self._reported_seconds: float | None = None

    def begin(self) -> None:
        """Note that the calling thread begins a tick."""
        self._moved_seconds = self._clock.monotonic()
        self._thread = threading.get_ident()

    def end(self, succeeded: bool) -> None:
        """Note the end of a tick, and report to systemd's watchdog."""
        self._thread = None
        self._moved_seconds = self._clock.monotonic()
        if succeeded:
            self._ticked_seconds = self._moved_seconds
        self._notify("WATCHDOG=1")

    def state(self) -> LoopState:
        """Return the state at present."""
        moment_seconds, ticked_seconds = self._clock.monotonic(), self._ticked_seconds
        age_seconds = None if ticked_seconds is None else moment_seconds - ticked_seconds
        return LoopState(moment_seconds - self._moved_seconds, age_seconds)

    def run(self, stopped: threading.Event) -> None:
        """Check the present tick every few seconds until `stopped` is set."""
        while not stopped.wait(_CHECK_SECONDS):
            self.check()

    def check(self) -> None:
        """Report the present tick if it takes too long and was not reported before."""
        thread, began_seconds = self._thread, self._moved_seconds
        lasts_seconds = self._clock.monotonic() - began_seconds
        if thread is None or lasts_seconds < LONG_TICK_SECONDS:
            return
        if began_seconds == self._reported_seconds:
            return
        self._reported_seconds = began_seconds
        frame = sys._current_frames().get(thread)  # noqa: SLF001  # there is no public way
        stack = "" if frame is None else "".join(traceback.format_stack(frame))
        text = f"a tick has lasted for {lasts_seconds:.0f} s"
        _log.error("%s; the loop's thread is at:\n%s", text, stack)
        try:
            self._on_long_tick(f"{text}; the loop's thread is at:\n{stack}")
        except Exception:  # the store may be what the loop waits for
            _log.exception("the long tick could not be recorded")

    def _notify(self, state: str) -> None:
        """Send a state to systemd, if it started this process with a watchdog."""
        if not self._notify_address:
            return
        address = self._notify_address
        if address.startswith("@"):  # an abstract socket
            address = f"\0{address[1:]}"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
                notifier.setblocking(False)
                notifier.sendto(state.encode(), address)
        except OSError as error:
            _log.warning("systemd's watchdog can't be reached: %s", error)
