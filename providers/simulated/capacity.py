"""How many instances of an offer a cloud has at a time, from a trace.

The files are those of "Can't Be Late" (Wu et al., NSDI'24): JSON with
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
    """`counts[k]` instances exist for the k-th `gap_seconds` of the trace; its end is its start.

    At second s of the clock the trace is at s + `offset_seconds`.
    """

    gap_seconds: float
    counts: tuple[int, ...]
    offset_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.gap_seconds < math.inf:
            raise ValueError(f"gap_seconds={self.gap_seconds}: a gap takes some time")
        if not self.counts or min(self.counts) < 0:
            raise ValueError("counts: a trace has at least one number, and none below 0")
        if not math.isfinite(self.offset_seconds):
            raise ValueError(f"offset_seconds={self.offset_seconds}: a finite number of seconds")

    @property
    def period_seconds(self) -> float:
        """After this time the trace begins anew."""
        return self.gap_seconds * len(self.counts)

    def shifted(self, seconds: float) -> CapacityTrace:
        """The same trace, `seconds` further on."""
        return replace(self, offset_seconds=self.offset_seconds + seconds)

    def available(self, seconds: float) -> int:
        """How many instances exist at that second of the clock, held or not."""
        return self.counts[self._step(seconds) % len(self.counts)]

    def changes(self, after_seconds: float, until_seconds: float) -> Iterator[tuple[float, int]]:
        """When the number changes, and what it is from then on, in (after, until]."""
        if not self._changing_steps:
            return
        period, step = divmod(self._step(after_seconds), len(self.counts))
        changes = len(self._changing_steps)
        for number in count(period * changes + bisect_right(self._changing_steps, step)):
            period, place = divmod(number, changes)
            step = self._changing_steps[place]
            seconds = self._start_seconds(period * len(self.counts) + step)
            if seconds > until_seconds:
                return
            yield seconds, self.counts[step]

    @cached_property
    def _changing_steps(self) -> tuple[int, ...]:
        """The steps of a period whose number is not that of the step before."""
        counts = self.counts
        return tuple(step for step in range(len(counts)) if counts[step] != counts[step - 1])

    def _start_seconds(self, step: int) -> float:
        return step * self.gap_seconds - self.offset_seconds

    def _step(self, seconds: float) -> int:
        """The step of that second. A division's rounding must not put its start outside it."""
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
    """The trace in a file.

    Raises:
        SpecError: the file can't be read or is not such a trace; the field is named.
    """
    try:
        file = _TraceFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}; name a file of a capacity trace") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise SpecError(f"{first['msg']} in {path}", field or None) from error
    return CapacityTrace(file.metadata.gap_seconds, tuple(file.data))
