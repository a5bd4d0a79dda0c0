"""Time axis that the rows of a table share, from now on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from autoscaler.service.pages.formats import duration, position

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DAY: Final = 86_400.0
_STEPS: Final = (
    *(10 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY),
)
_LEAST_SECONDS: Final = 30 * _MINUTE
_MOST_TICKS: Final = 4
# Share of the ends that lie on the axis; the rest is cut off, and drawn as an arrow.
_SHARE: Final = 0.85
_MARGIN: Final = 1.08


@dataclass(frozen=True, slots=True)
class FinishAxis:
    """Axis from `first_seconds` to `last_seconds`, with marks (position in percent, text)."""

    first_seconds: float
    last_seconds: float
    marks: tuple[tuple[float, str], ...]

    def at(self, seconds: float) -> float:
        """Return the position of a time in percent, within 0 and 100."""
        return position(seconds, self.first_seconds, self.last_seconds)

    def is_beyond(self, seconds: float) -> bool:
        """Return whether a time lies beyond the axis."""
        return seconds > self.last_seconds


def axis_of(ends: Sequence[float], now_seconds: float) -> FinishAxis:
    """Return an axis from now on that contains most of the ends."""
    spans = sorted(end - now_seconds for end in ends if end > now_seconds)
    span = _LEAST_SECONDS
    if spans:
        place = min(int(_SHARE * len(spans)), len(spans) - 1)
        span = max(spans[place] * _MARGIN, _LEAST_SECONDS)
    step = _step(span)
    marks = []
    seconds = step
    while seconds < span:
        marks.append((round(100 * seconds / span, 2), f"in {duration(seconds)}"))
        seconds += step
    return FinishAxis(now_seconds, now_seconds + span, tuple(marks))


def _step(span_seconds: float) -> float:
    """Return a round distance of at most four marks on an axis."""
    for step, _ in pairwise(_STEPS):
        if span_seconds / step <= _MOST_TICKS:
            return step
    return max(_STEPS[-1], span_seconds / _MOST_TICKS)
