"""Use of this instance's time for its job: boot, useful, idle, pause and lost.

The agent says at each turn what the instance does. Within the training of a session the script
counts pauses and lost steps. The count covers all starts of scripts and all runs of the agent.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.time_use import CostCategory, TimeCount, TimeUse
from autoscaler.node.state import Start
from autoscaler.wire.codec import decode, encode

_log = logging.getLogger(__name__)

_WRITE_SECONDS: Final = 5.0
_OFF_PHASES: Final = (InstancePhase.DRAINING, InstancePhase.DRAINED)
_FIELDS: Final = {
    CostCategory.USEFUL: "useful_seconds",
    CostCategory.BOOT: "boot_seconds",
    CostCategory.IDLE: "idle_seconds",
    CostCategory.PAUSE: "pause_seconds",
    CostCategory.LOST: "lost_seconds",
}


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Times of one start of the script without progress, as far as known, and its attempt.

    `paused_seconds` and `lost_seconds` are from the script. For `idle_seconds` it has made no step
    and its devices have done next to nothing; this falls to 0 when it makes steps again.
    """

    started_seconds: float
    attempt: int
    paused_seconds: float = 0.0
    lost_seconds: float = 0.0
    idle_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Stored:
    """Stored count, for a later agent. `trained_seconds` are those of the start `times`."""

    job: str
    begun_seconds: float
    at_seconds: float
    settled: TimeUse = field(default_factory=TimeUse)
    trained_seconds: float = 0.0
    stalled_seconds: float = 0.0
    times: StartTimes | None = None
    present: CostCategory = CostCategory.BOOT

    @property
    def use(self) -> TimeUse:
        """All time so far, with the training of the present start divided."""
        times = self.times
        if times is None:
            return self.settled
        left = self.trained_seconds
        lost = min(times.lost_seconds, left)
        paused = min(times.paused_seconds, left - lost)
        idle = min(self.stalled_seconds + times.idle_seconds, left - lost - paused)
        useful = left - lost - paused - idle
        divided = TimeUse(useful, 0.0, idle, paused, lost)
        return self.settled + divided


class TimeMeter:
    """Count of one instance's time. Threads may share a meter."""

    def __init__(self, path: Path, clock: Clock, job: str) -> None:
        self._path = path
        self._clock = clock
        self._lock = Lock()
        now_seconds = clock.now()
        loaded = _load(path)
        is_known = loaded is not None and loaded.job == job and loaded.at_seconds <= now_seconds
        self._kept = loaded if loaded and is_known else _Stored(job, now_seconds, now_seconds)
        # Time without an agent is that of its last known use.
        self._counted_seconds = clock.monotonic() - (now_seconds - self._kept.at_seconds)
        self._written_seconds = clock.monotonic()
        self._follows = False
        self._restarts = CostCategory.PAUSE
        self._before: tuple[str, TimeCount] | None = None

    def begin(self, job: str) -> None:
        """Begin the count for another job; that of the job before stays as it is."""
        with self._lock:
            if job != self._kept.job:
                self._pass_time()
                self._before = self._kept.job, self._count()
                now_seconds = self._clock.now()
                self._kept = _Stored(job, now_seconds, now_seconds)

    def turn_at_work(self, times: StartTimes, follows: bool = False) -> None:
        """Count the time from now on as that of a script at work: useful, but for `times`.

        A script that `follows` another instance of its gang can't tell, so there is no count then.
        """
        with self._lock:
            self._pass_time()
            self._follows = follows
            known = self._kept.times
            if known is not None and times.started_seconds != known.started_seconds:
                self._settle()
            elif known is not None and times.idle_seconds < known.idle_seconds:
                stalled_seconds = self._kept.stalled_seconds + known.idle_seconds
                self._kept = replace(self._kept, stalled_seconds=stalled_seconds)
            self._kept = replace(self._kept, times=times, present=CostCategory.USEFUL)
            self._write_if_due()

    def turn_off_work(self, phase: InstancePhase, start: Start | None, stands_by: bool) -> None:
        """Count the time from now on as that of an instance whose script is not at work.

        Args:
            phase: what the instance does.
            start: the last start of the script; None before the first.
            stands_by: whether the controller wants the script paused.
        """
        with self._lock:
            self._pass_time()
            if start is not None and start.has_ended:
                self._restarts = CostCategory.PAUSE if start.is_leaving else CostCategory.LOST
            present = self._category(phase, start, stands_by)
            self._kept = replace(self._kept, present=present)
            self._write_if_due()

    def _category(
        self, phase: InstancePhase, start: Start | None, stands_by: bool
    ) -> CostCategory:
        is_over = start is not None and start.has_done_its_part
        if phase in _OFF_PHASES or is_over or stands_by:
            return CostCategory.IDLE
        trained = self._kept.times
        if trained is None:
            return CostCategory.IDLE if phase is InstancePhase.WAITING else CostCategory.BOOT
        has_failed = start is not None and start.attempt > trained.attempt
        return CostCategory.LOST if has_failed else self._restarts

    def count(self, job: str | None) -> TimeCount | None:
        """Return the count for the job, also for the job before; None is the present job.

        None if this instance can't tell.
        """
        with self._lock:
            self._pass_time()
            if self._follows:
                return None
            if self._before is not None and job == self._before[0] != self._kept.job:
                return self._before[1]
            return self._count()

    def _count(self) -> TimeCount:
        return TimeCount(self._kept.begun_seconds, self._kept.use, self._kept.present)

    def _pass_time(self) -> None:
        """Add the time since the last call to the present category."""
        now_seconds = self._clock.monotonic()
        seconds, self._counted_seconds = now_seconds - self._counted_seconds, now_seconds
        kept = self._kept
        if kept.present is CostCategory.USEFUL:
            kept = replace(kept, trained_seconds=kept.trained_seconds + seconds)
        else:
            name = _FIELDS[kept.present]
            settled = replace(kept.settled, **{name: getattr(kept.settled, name) + seconds})
            kept = replace(kept, settled=settled)
        self._kept = replace(kept, at_seconds=self._clock.now())

    def _settle(self) -> None:
        """Divide the training of the last start for good, as another one has begun."""
        self._kept = replace(
            self._kept,
            settled=self._kept.use,
            trained_seconds=0.0,
            stalled_seconds=0.0,
            times=None,
        )

    def _write_if_due(self) -> None:
        if self._clock.monotonic() - self._written_seconds >= _WRITE_SECONDS:
            self._write()

    def _write(self) -> None:
        """Write the count without a sync; if that fails, a later agent counts anew."""
        self._written_seconds = self._clock.monotonic()
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        with suppress(OSError):
            unfinished.write_bytes(encode(_Stored, self._kept))
            os.replace(unfinished, self._path)


def _load(path: Path) -> _Stored | None:
    try:
        return decode(_Stored, path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, SpecError) as error:
        _log.warning("the count of time restarts from 0: %s: %s", path, error)
        return None
