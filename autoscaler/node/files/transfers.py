"""Count of the bytes that an instance sent to and fetched from the storage of its jobs.

The agent counts its own transfers, of the bundle and the log; the job's processes report theirs.
The total covers all starts of scripts and all runs of the agent. The total is in a file before it
is reported, so that no byte is reported twice.
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

# Number of meters kept apart, at least that of concurrent processes. Older ones are summed up.
_MAX_METERS: Final = 64


@dataclass(frozen=True, slots=True)
class _StoredCount:
    """Stored count, for a later agent. `meters` belong to processes that may still be running."""

    begun_seconds: float
    settled: Transfer = field(default_factory=Transfer)
    meters: Mapping[str, Transfer] = field(default_factory=dict)

    @property
    def total(self) -> Transfer:
        return sum(self.meters.values(), self.settled)


class Transfers:
    """Transfer count of one instance; `meter` is the agent's own. Threads may share a count."""

    def __init__(self, path: Path, meter: Meter, clock: Clock, job: str) -> None:
        self._path = path
        self._meter = meter
        self._lock = Lock()
        self._written = _load(path)
        self._kept = self._written or _StoredCount(clock.now())
        self._job = job
        self._before: tuple[str, Transfer] | None = None

    def hear(self, reading: MeterReading) -> None:
        """Record the total count of a process of the job."""
        with self._lock:
            meters = dict(self._kept.meters)
            known = meters.pop(reading.meter, Transfer())
            meters[reading.meter] = known.most(reading.transfer)
            settled = self._kept.settled
            if len(meters) > _MAX_METERS:
                settled += meters.pop(next(iter(meters)))
            self._kept = replace(self._kept, settled=settled, meters=meters)

    def begin(self, job: str) -> None:
        """Assign transfers from now on to another job."""
        with self._lock:
            if job != self._job:
                self._before = self._job, self._current_count().total
                self._job = job

    def count(self, job: str | None) -> TransferCount:
        """Return the total count; for the previous job, the total when that job was left.

        `job` None is the current job.
        """
        with self._lock:
            current = self._current_count()
            if current != self._written:
                self._write(current)
            if self._before is not None and job == self._before[0] != self._job:
                return TransferCount(current.begun_seconds, self._before[1])
            return TransferCount(current.begun_seconds, current.total)

    def _current_count(self) -> _StoredCount:
        """Return the count with the agent's own transfers, whose meter ends with the agent."""
        own_transfer = self._meter.read().transfer
        return replace(self._kept, settled=self._kept.settled + own_transfer)

    def _write(self, kept: _StoredCount) -> None:
        """Write the count without a sync, since it need not survive the machine.

        If the write fails, a later agent starts from a lower count and reports less.
        """
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        with suppress(OSError):
            unfinished.write_bytes(encode(_StoredCount, kept))
            os.replace(unfinished, self._path)
            self._written = kept


def _load(path: Path) -> _StoredCount | None:
    try:
        return decode(_StoredCount, path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, SpecError) as error:
        _log.warning("the count of transfers restarts from 0: %s: %s", path, error)
        return None
