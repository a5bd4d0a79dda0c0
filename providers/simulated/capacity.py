"""Number of instances of an offer that a cloud has over time, from a trace.

Files have the format of "Can't Be Late" (Wu et al., NSDI'24): JSON with
``{"metadata": {"gap_seconds": 300}, "data": [instances available, ...]}``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, ValidationError

from autoscaler.domain.errors import SpecError


@dataclass(frozen=True)
class CapacityTrace:
    """Periodic trace: `counts[k]` instances exist in the k-th interval of `gap_seconds`.

    The trace starts again after its end. At time s of the clock, the trace is at s +
    `offset_seconds`.
    """

    gap_seconds: float
    counts: tuple[int, ...]
    offset_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.gap_seconds < math.inf:
            raise ValueError(f"gap_seconds={self.gap_seconds}: must be positive and finite")
        if not self.counts or min(self.counts) < 0:
            raise ValueError("counts: name at least one number, and none below 0")
        if not math.isfinite(self.offset_seconds):
            raise ValueError(f"offset_seconds={self.offset_seconds}: must be finite")

    @property
    def period_seconds(self) -> float:
        """Length of the trace in seconds, after which it starts again."""
        return self.gap_seconds * len(self.counts)

    def shifted(self, seconds: float) -> CapacityTrace:
        """Return the same trace, advanced by `seconds`."""
        return replace(self, offset_seconds=self.offset_seconds + seconds)

    def available(self, seconds: float) -> int:
        """Return the number of instances that exist at a time of the clock, held or not."""
        return self.counts[self._step(seconds) % len(self.counts)]

    def changes(self, after_seconds: float, until_seconds: float) -> Iterator[tuple[float, int]]:
        """Yield the time of each change in (after, until], and the number from then on."""
        if not self._changing_steps:
            return
        period_number, step = divmod(self._step(after_seconds), len(self.counts))
        changes_per_period = len(self._changing_steps)
        for change_number in count(
            period_number * changes_per_period + bisect_right(self._changing_steps, step)
        ):
            period_number, index = divmod(change_number, changes_per_period)
            step = self._changing_steps[index]
            seconds = self._start_seconds(period_number * len(self.counts) + step)
            if seconds > until_seconds:
                return
            yield seconds, self.counts[step]

    @cached_property
    def _changing_steps(self) -> tuple[int, ...]:
        """Steps of a period whose count differs from the step before."""
        counts = self.counts
        return tuple(step for step in range(len(counts)) if counts[step] != counts[step - 1])

    def _start_seconds(self, step: int) -> float:
        return step * self.gap_seconds - self.offset_seconds

    def _step(self, seconds: float) -> int:
        """Return the step at a time, corrected for the division's rounding."""
        step = math.floor((seconds + self.offset_seconds) / self.gap_seconds)
        if self._start_seconds(step + 1) <= seconds:
            return step + 1
        return step if self._start_seconds(step) <= seconds else step - 1


class _Metadata(BaseModel):
    model_config = ConfigDict(strict=True)

    gap_seconds: Annotated[FiniteFloat, Field(gt=0)]


class _TraceFile(BaseModel):
    model_config = ConfigDict(strict=True)

    metadata: _Metadata
    data: Annotated[list[NonNegativeInt], Field(min_length=1)]


def read_capacity_trace(path: Path) -> CapacityTrace:
    """Return the trace in a file.

    Raises:
        SpecError: the file can't be read or is not such a trace; the error names the field.
    """
    try:
        file = _TraceFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}; name a capacity trace file") from error
    except ValidationError as error:
        first_error = error.errors()[0]
        field = ".".join(str(part) for part in first_error["loc"])
        raise SpecError(f"{first_error['msg']} in {path}", field or None) from error
    return CapacityTrace(file.metadata.gap_seconds, tuple(file.data))
