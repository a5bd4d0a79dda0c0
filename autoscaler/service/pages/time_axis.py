"""Time axis that the rows of a table share, over what is predicted of all rows. Pure."""

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
    *(5.0, 10.0, 20.0, 30.0, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY, 28 * _DAY),
)
_LEAST_SECONDS: Final = 20.0
_MOST_TICKS: Final = 4
# Marks of an axis that begins later than now, whose texts are longer, and their least place.
_FEW_TICKS: Final = 2
_LEAST_PLACE: Final = 25.0
# Share of the ends that lie on the axis; the rest is cut off, and drawn as an arrow.
_SHARE: Final = 0.85
_MARGIN: Final = 1.08
# A deadline further away than this multiple of the ends is drawn as an arrow.
_FAR: Final = 3.0
# The axis begins at now, unless nothing would lie in this share of it.
_EMPTY_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class FinishAxis:
    """Axis from `first_seconds` to `last_seconds`, with marks (position in percent, text)."""

    first_seconds: float
    last_seconds: float
    first_text: str
    marks: tuple[tuple[float, str], ...]

    def at(self, seconds: float) -> float:
        """Return the position of a time in percent, within 0 and 100."""
        return position(seconds, self.first_seconds, self.last_seconds)

    def is_beyond(self, seconds: float) -> bool:
        """Return whether a time lies beyond the axis."""
        return seconds > self.last_seconds


def axis_of(
    ends: Sequence[tuple[float, float]], deadlines: Sequence[float], now_seconds: float
) -> FinishAxis:
    """Return an axis that contains most of the ends, and the deadlines that are not far beyond.

    Args:
        ends: earliest and latest end of each row.
        deadlines: deadlines of the rows.
        now_seconds: present time; the axis begins here, or before the first of several far events.
    """
    due = [deadline - now_seconds for deadline in deadlines if deadline > now_seconds]
    last = _last(sorted(end - now_seconds for _, end in ends if end > now_seconds), due)
    events = [*due, *(max(first - now_seconds, 0.0) for first, end in ends if end > now_seconds)]
    begin = _begin(min(events), last) if len(events) > 1 else 0.0
    marks = _marks(begin, last)
    first_text = f"in {duration(begin)}" if begin else "now"
    return FinishAxis(now_seconds + begin, now_seconds + last, first_text, marks)


def _last(ends: Sequence[float], due: Sequence[float]) -> float:
    """Return the end of the axis in seconds from now. `ends` and `due` are from now, too."""
    if not ends:
        return max(_MARGIN * max(due, default=0.0), _LEAST_SECONDS)
    last = ends[min(int(_SHARE * len(ends)), len(ends) - 1)]
    near = (deadline for deadline in due if deadline <= _FAR * last)
    return max(_MARGIN * max([last, *near]), _LEAST_SECONDS)


def _begin(first: float, last: float) -> float:
    """Return the begin of the axis in seconds from now: 0, or a round time before `first`."""
    if first <= _EMPTY_SHARE * last or last - first < _LEAST_SECONDS:
        return 0.0
    step = _step(last - first, _FEW_TICKS)
    return first // step * step


def _marks(begin: float, last: float) -> tuple[tuple[float, str], ...]:
    """Return the marks at round times from now between both ends of the axis."""
    step = _step(last - begin, _FEW_TICKS if begin else _MOST_TICKS)
    marks = []
    seconds = (begin // step + 1) * step
    while seconds < last:
        place = round(100 * (seconds - begin) / (last - begin), 2)
        if not begin or place >= _LEAST_PLACE:
            marks.append((place, f"in {duration(seconds)}"))
        seconds += step
    return tuple(marks)


def _step(span_seconds: float, most_ticks: int) -> float:
    """Return a round distance of at most so many marks on an axis."""
    for step, _ in pairwise(_STEPS):
        if span_seconds / step <= most_ticks:
            return step
    return max(_STEPS[-1], span_seconds / most_ticks)
