"""Texts and shapes of values on pages: money, times, numbers, lines. Pure.

Money that was billed is shown to the cent. Money that is predicted has two significant digits and
the word "about", so that the two never look alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Final

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective, Preference

NOTHING: Final = "\u2013"
_DAY: Final = 86_400.0
_UNITS: Final = ((_DAY, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_LONG_DAYS: Final = 10
_CENT: Final = Decimal("0.01")
_LEAST_SHOWN: Final = Decimal("0.0001")


def billed(usd: Decimal | float | None) -> str:
    """Return an amount that was billed, to the cent, or below one with four decimals."""
    if usd is None:
        return NOTHING
    amount = usd if isinstance(usd, Decimal) else Decimal(str(usd))
    if 0 < amount < _CENT:
        return f"${amount:.4f}" if amount >= _LEAST_SHOWN else f"< ${_LEAST_SHOWN}"
    sign = "-" if amount < 0 else ""
    return f"{sign}${abs(amount):,.2f}"


def predicted(usd: float | None) -> str:
    """Return a predicted amount with two significant digits, such as "about $1,300"."""
    return NOTHING if usd is None else f"about {_rough_usd(usd)}"


def predicted_band(low: float | None, high: float | None) -> str:
    """Return the band of a predicted amount, such as "about $12 to $18"."""
    if low is None or high is None:
        return NOTHING
    first, last = _rough_usd(low), _rough_usd(high)
    return f"about {first}" if first == last else f"about {first} to {last}"


def _rough_usd(usd: float) -> str:
    if not math.isfinite(usd):
        return "an unknown amount"
    sign = "-" if usd < 0 else ""
    return f"{sign}${significant(abs(usd), 2)}"


def rate(usd_per_hour: Decimal | float | None) -> str:
    """Return a price per hour that is billed, such as "$3.07/h"."""
    if usd_per_hour is None:
        return NOTHING
    if 0 < usd_per_hour < 0.1:
        return f"${significant(float(usd_per_hour))}/h"
    return f"{billed(usd_per_hour)}/h"


def significant(value: float | None, digits: int = 3) -> str:
    """Return a number with so many significant digits, without an exponent."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "unlimited" if value > 0 else "-unlimited"
    if value == 0:
        return "0"
    rounded = round(value, digits - 1 - math.floor(math.log10(abs(value))))
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(places, 0)}f}"


def percent(share: float | None) -> str:
    """Return a share as whole percent; a dash for None."""
    return NOTHING if share is None else f"{100 * share:.0f} %"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as "1 job" or "1,000 jobs"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def allocated(allocation: Allocation) -> str:
    """Return what a job holds, with a multiplication sign between number and type."""
    return str(allocation).replace(" x ", " \u00d7 ")


def size(byte_count: float | None) -> str:
    """Return a size such as "11.3 GB"."""
    if byte_count is None:
        return NOTHING
    value = float(byte_count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{significant(value)} {unit}"
        value /= 1000
    return f"{significant(value)} TB"


def duration(seconds: float | None) -> str:
    """Return a duration with its two largest units, such as "2 h 14 min"."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    seconds = max(seconds, 0.0)
    for (unit, name), (smaller, smaller_name) in pairwise(_UNITS):
        whole, rest = divmod(round(seconds / smaller) * smaller, unit)
        if whole:
            is_long = unit == _DAY and whole >= _LONG_DAYS
            small = 0 if is_long else round(rest / smaller)
            return f"{whole:.0f} {name}" + (f" {small} {smaller_name}" if small else "")
    return f"{math.floor(seconds):.0f} s"


def duration_band(low_seconds: float, high_seconds: float) -> str:
    """Return the band of a predicted duration in one unit, such as "15 to 17 min"."""
    low, high = max(low_seconds, 0.0), max(high_seconds, 0.0)
    for unit, name in _UNITS:
        if high >= 1.5 * unit or unit == 1.0:
            first, last = significant(low / unit, 2), significant(high / unit, 2)
            return f"{first} {name}" if first == last else f"{first} to {last} {name}"
    return NOTHING


def relative(at_seconds: float | None, now_seconds: float) -> str:
    """Return a time in relation to now, such as "3 min ago" or "in 2 h"."""
    if at_seconds is None:
        return NOTHING
    distance = at_seconds - now_seconds
    if abs(distance) < 1:
        return "now"
    text = duration(abs(distance))
    return f"in {text}" if distance > 0 else f"{text} ago"


def absolute(at_seconds: float | None) -> str:
    """Return a time with its zone, such as "2026-11-28 03:42:10 UTC"."""
    if at_seconds is None or not math.isfinite(at_seconds):
        return NOTHING
    return f"{datetime.fromtimestamp(at_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def machine_time(at_seconds: float) -> str:
    """Return a time as an ISO 8601 text, for the attribute of a `<time>` element."""
    return f"{datetime.fromtimestamp(at_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def objective_text(objective: Objective, now_seconds: float, has_ended: bool = False) -> str:
    """Return an objective in words, such as "deadline in 3 h, budget $20.00".

    The deadline of a job that has ended is a date: it is not due any more.
    """
    parts = []
    match objective.preference:
        case Preference.VALUE_OF_TIME:
            value = objective.value_of_time_usd_per_hour or 0.0
            worth = f"${value:,.0f}" if value == round(value) else billed(value)
            parts.append(f"an hour of waiting is worth {worth}")
        case preference:
            parts.append(str(preference))
    if objective.deadline_seconds is not None:
        deadline_seconds = objective.deadline_seconds
        shown = (
            absolute(deadline_seconds) if has_ended else relative(deadline_seconds, now_seconds)
        )
        parts.append(f"deadline {shown}")
    if objective.budget_usd is not None:
        parts.append(f"budget {billed(objective.budget_usd)}")
    return ", ".join(parts)


def polyline(values: Sequence[float], width: float, height: float, margin: float = 1.5) -> str:
    """Return the points of a line through values at equal distances, for an SVG.

    The line spans from 0 (or the least value, if that is below) to the greatest value. Values that
    are not finite are left out. The result is empty for fewer than two values.
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, high = min(0.0, *finite), max(finite)
    span = (high - low) or 1.0
    step = (width - 2 * margin) / (len(finite) - 1)
    points = (
        (margin + index * step, height - margin - (value - low) / span * (height - 2 * margin))
        for index, value in enumerate(finite)
    )
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def position(value: float, first: float, last: float) -> float:
    """Return where a value lies between two others, in percent, within 0 and 100."""
    if not last > first:
        return 0.0
    return round(min(max((value - first) / (last - first), 0.0), 1.0) * 100, 2)


def grouped(names: Iterable[str]) -> dict[str, int]:
    """Return how many times each name occurs, the most frequent first."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
