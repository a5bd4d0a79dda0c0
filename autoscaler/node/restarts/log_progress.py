"""Progress of a restartable job, read from the lines that its command prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.report import CheckpointStatus, StepObservation, TrainingReport
from autoscaler.domain.restart import ProgressPattern
from autoscaler.domain.training import RESTARTS

_MOST_BYTES: Final = 1 << 20
_LONGEST_LINE_BYTES: Final = 4096
_LEAST_SPAN_SECONDS: Final = 2.0
"""Shortest time of which a step time is computed."""
_UNKNOWN_PARAMETER_BYTES: Final = 100_000_000
"""Assumed size of the parameters, as of jobs without a report."""


@dataclass(frozen=True, slots=True)
class RunSize:
    """Size of the world that runs the command, its total batch and all its work, in examples."""

    device_kind: str
    instances: int
    devices: int
    batch: int
    total_examples: float | None = None

    @property
    def device_batch(self) -> int:
        """Examples of each step on one device, rounded up."""
        return -(-self.batch // self.devices)


class LineReader:
    """Reader of the lines that are added to a file from `offset` on."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self._offset = offset
        self._rest = b""

    def lines(self) -> list[str]:
        """Return the complete lines since the last call, of at most 1 MiB; long lines are cut."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return []
        self._offset += len(chunk)
        *lines, rest = (self._rest + chunk.replace(b"\r", b"\n")).split(b"\n")
        self._rest = rest[-_LONGEST_LINE_BYTES:]
        return [line[-_LONGEST_LINE_BYTES:].decode(errors="replace") for line in lines]


@dataclass(slots=True)
class LogProgress:
    """Progress of one start of the command; `add` takes its lines in order.

    The first number of a start is that of its checkpoint or just after: step times are measured
    from there. Numbers that fall are ignored, because all ranks may print them.
    """

    pattern: ProgressPattern
    size: RunSize
    examples: float | None = None
    _since: tuple[float, float] | None = field(default=None)
    _speed: float | None = None

    def add(self, lines: list[str], now_seconds: float) -> bool:
        """Add lines that were printed until now; return whether they state progress."""
        numbers = [
            number for line in lines if (number := self.pattern.number_in(line)) is not None
        ]
        if not numbers:
            return False
        unit = self.size.batch if self.pattern.unit == "step" else 1
        examples = max(numbers) * unit
        if self.examples is not None and examples <= self.examples:
            return False
        self.examples = examples
        if self._since is None:
            self._since = (now_seconds, examples)
        return True

    @property
    def steps(self) -> int:
        """Steps so far, of all starts, rounded down."""
        return int((self.examples or 0.0) // self.size.batch)

    def report(self, checkpoint: CheckpointStatus, now_seconds: float) -> TrainingReport:
        """Return a report of the progress, with the step time since the last one if long enough.

        `add` must have returned True before.
        """
        assert self.examples is not None
        observations = self._observations(now_seconds)
        if observations:
            self._speed = self.size.batch / observations[0].step_seconds
        size, batch = self.size, self.size.batch
        return TrainingReport(
            step=self.steps,
            epoch=0,
            progress_examples=self.examples,
            total_examples=size.total_examples,
            batch=Batch(batch, size.device_batch, 0),
            bounds=BatchBounds(batch, batch, batch, adaptive=False),
            replicas=size.instances,
            devices=size.devices,
            learning_rate=0.0,
            parameter_bytes=_UNKNOWN_PARAMETER_BYTES,
            goodput_measured=self._speed,
            observations=observations,
            checkpoint=checkpoint,
            engine=RESTARTS,
        )

    def _observations(self, now_seconds: float) -> tuple[StepObservation, ...]:
        assert self.examples is not None and self._since is not None
        since_seconds, since_examples = self._since
        span_seconds, size = now_seconds - since_seconds, self.size
        steps = (self.examples - since_examples) / size.batch
        if span_seconds < _LEAST_SPAN_SECONDS or steps < 1:
            return ()
        self._since = (now_seconds, self.examples)
        return (
            StepObservation(
                device_kind=size.device_kind,
                instances=size.instances,
                devices=size.devices,
                device_batch=size.device_batch,
                accumulation=0,
                step_seconds=span_seconds / steps,
                sync_seconds=0.0,
                steps=max(int(steps), 1),
            ),
        )
