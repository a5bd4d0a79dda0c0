"""What an instance has sent to where its jobs keep their files, and fetched from there.

The agent counts its own, the bundle and the log; the processes of the job tell of theirs. All of
it is one count, over all starts of scripts and lives of the agent: it is in a file before it is
told, so that no byte is told twice.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import SpecError
from autoscaler.domain.transfer import MeterReading, Transfer, TransferCount
from autoscaler.objects import Meter
from autoscaler.wire.codec import decode, encode

_log = logging.getLogger(__name__)

# More processes than that don't speak to an agent at once; of earlier ones only the sum is kept.
_MOST_METERS: Final = 64


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a later agent goes on from: `meters` are of processes that may still run."""

    begun_seconds: float
    settled: Transfer = field(default_factory=Transfer)
    meters: Mapping[str, Transfer] = field(default_factory=dict)

    @property
    def total(self) -> Transfer:
        return sum(self.meters.values(), self.settled)


class Transfers:
    """The count of one instance, whose agent's own `meter` is. Safe to share between threads."""

    def __init__(self, path: Path, meter: Meter, clock: Clock, job: str) -> None:
        self._path = path
        self._meter = meter
        self._lock = Lock()
        self._written = _load(path)
        self._kept = self._written or _Kept(clock.now())
        self._job = job
        self._before: tuple[str, Transfer] | None = None

    def hear(self, reading: MeterReading) -> None:
        """Take in what a process of the job says of itself: all that it has counted."""
        with self._lock:
            meters = dict(self._kept.meters)
            known = meters.pop(reading.meter, Transfer())
            meters[reading.meter] = known.most(reading.transfer)
            settled = self._kept.settled
            if len(meters) > _MOST_METERS:
                settled += meters.pop(next(iter(meters)))
            self._kept = replace(self._kept, settled=settled, meters=meters)

    def begin(self, job: str) -> None:
        """Let what comes from now on be of another job."""
        with self._lock:
            if job != self._job:
                self._before = self._job, self._now().total
                self._job = job

    def count(self, job: str | None) -> TransferCount:
        """How far it has come, or had when the last job was left that is asked for."""
        with self._lock:
            now = self._now()
            if now != self._written:
                self._write(now)
            if self._before is not None and job == self._before[0] != self._job:
                return TransferCount(now.begun_seconds, self._before[1])
            return TransferCount(now.begun_seconds, now.total)

    def _now(self) -> _Kept:
        """With our own, of which no later agent has the meter."""
        own = self._meter.read().transfer
        return replace(self._kept, settled=self._kept.settled + own)

    def _write(self, kept: _Kept) -> None:
        """It need not outlive the machine, whose processes would not either: nothing waits for it.

        Where the disk does not take it, a later agent counts from less, and tells less.
        """
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        with suppress(OSError):
            unfinished.write_bytes(encode(_Kept, kept))
            os.replace(unfinished, self._path)
            self._written = kept


def _load(path: Path) -> _Kept | None:
    try:
        return decode(_Kept, path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, SpecError) as error:
        _log.warning("what was sent and fetched is counted anew: %s: %s", path, error)
        return None
