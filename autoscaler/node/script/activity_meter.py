"""Work of the script between its steps: for how long it is quiet, and whether devices are in use.

Nothing is measured while the script makes steps, so that a job that learns costs nothing more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from statistics import median
from typing import Final

import psutil

from autoscaler.clock import Clock
from autoscaler.domain.activity import Activity
from autoscaler.domain.gpu_use import GpuUse
from autoscaler.node.script.gpu_meter import gpu_use

QUIET_SECONDS: Final = 60.0
"""Time without a step after which the agent reports the activity."""
_STEP_SECONDS: Final = 30.0  # steps in which reported times grow, to save reports
_STEPS_REMEMBERED: Final = 20
_IDLE_GPU_SHARE: Final = 0.02
_IDLE_CORE_SHARE: Final = 0.01

Use = Callable[[], float | None]
"""Function that returns whether devices are in use, as a share of one device; None: unknown."""


class ActivityMeter:
    """Times of one start's steps and phases, and the use of its devices."""

    def __init__(self, clock: Clock, use: Callable[[], Use]) -> None:
        """Set the clock, and the function that begins to measure the use of the devices."""
        self._clock = clock
        self._begin_use = use
        self.begin()

    def begin(self) -> None:
        """Forget everything, at the start of a script."""
        self._quiet_since = self._clock.monotonic()
        self._steps = 0
        self._step_seconds: deque[float] = deque(maxlen=_STEPS_REMEMBERED)
        self._phases: list[tuple[str, float]] = []
        self._waits_for_others = False
        self._use: Use | None = None
        self._idle_since: float | None = None
        self._looked: float = -math.inf

    def stepped(self, steps: int) -> None:
        """Record that the script has made `steps` steps since its start."""
        now = self._clock.monotonic()
        if steps <= self._steps:
            return
        if self._steps and not self._phases:
            self._step_seconds.append((now - self._quiet_since) / (steps - self._steps))
        self._steps, self._quiet_since = steps, now
        self._waits_for_others = False
        self._use = self._idle_since = None

    def wait_for_others(self) -> None:
        """Record that the script waits for the job's other instances, until its next step."""
        self._waits_for_others = True

    def declare(self, phase: str | None, seconds: float) -> None:
        """Record a phase of at most `seconds` that the script declares; None ends the last one.

        A phase may contain others, such as a checkpoint. The time without a step starts anew with
        the end of the outermost one.
        """
        now = self._clock.monotonic()
        if phase is not None:
            self._phases.append((phase, now + seconds))
        elif self._phases:
            self._phases.pop()
            self._quiet_since = self._quiet_since if self._phases else now

    def activity(self, has_session: bool) -> Activity | None:
        """Return the activity of a script that has been quiet for a while; None if it has not."""
        now = self._clock.monotonic()
        quiet_seconds = now - self._quiet_since
        if quiet_seconds < QUIET_SECONDS:
            return None
        self._look(now)
        phase, ends = max(self._phases, key=itemgetter(1), default=(None, math.inf))
        return Activity(
            quiet_seconds=_rounded(quiet_seconds),
            steps=self._steps if has_session else None,
            step_seconds=round(median(self._step_seconds), 3) if self._step_seconds else None,
            phase=phase,
            phase_seconds=None if phase is None else _rounded(ends - now),
            idle_seconds=None if self._idle_since is None else _rounded(now - self._idle_since),
            waits_for_others=self._waits_for_others,
        )

    @property
    def idle_seconds(self) -> float:
        """Seconds without a step for which the devices have done next to nothing, until now."""
        return 0.0 if self._idle_since is None else self._clock.monotonic() - self._idle_since

    def _look(self, now: float) -> None:
        """Measure the use of the devices since the last look, at most every 30 s."""
        if now - self._looked < _STEP_SECONDS:
            return
        self._looked = now
        if self._use is None:
            self._use = self._begin_use()
            return
        share = self._use()
        if share is None or share > _IDLE_CORE_SHARE:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now


def _rounded(seconds: float) -> float:
    return math.floor(seconds / _STEP_SECONDS) * _STEP_SECONDS


def use_of_devices(variable: str, value: str, clock: Clock) -> Use:
    """Begin to measure the use of an instance's GPUs, or of cores by the job's processes.

    GPUs are asked by NVML, if the package nvidia-ml-py is installed. Without it, and on CPUs, the
    processes are those with an environment variable of this value.
    """
    if gpu_use() is not None:
        return lambda: _scaled_gpu_share(gpu_use())
    before, began = _processor_seconds(variable, value), clock.monotonic()

    def use() -> float | None:
        nonlocal before, began
        after, now = _processor_seconds(variable, value), clock.monotonic()
        spent = after - before
        elapsed = now - began
        before, began = after, now
        return max(spent, 0.0) / elapsed if elapsed > 0 else None

    return use


def _scaled_gpu_share(use: GpuUse | None) -> float | None:
    """Return the use of the busiest GPU, on the scale of cores' idleness."""
    if use is None:
        return None
    return use.busiest_share * _IDLE_CORE_SHARE / _IDLE_GPU_SHARE


def _processor_seconds(variable: str, value: str) -> float:
    """Return the processor time of all processes with this environment variable."""
    seconds = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(variable) == value:
                times = process.cpu_times()
                seconds += times.user + times.system
    return seconds
