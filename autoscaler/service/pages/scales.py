"""Scales and ticks of drawings: values to points of an SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

_STEPS: Final = (1.0, 2.0, 5.0, 10.0)
_TIME_STEPS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0),
    *(86_400.0, 172_800.0, 604_800.0, 2_592_000.0),
)
_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class AxisScale:
    """Linear map of values from `first` to `last` to coordinates from `start` to `end`."""

    first: float
    last: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the coordinate of a value, to a tenth."""
        span = (self.last - self.first) or 1.0
        return round(self.start + (value - self.first) / span * (self.end - self.start), 1)

    def within(self, value: float) -> float:
        """Return the coordinate of a value, or of the nearer end if it is outside."""
        low, high = sorted((self.first, self.last))
        return self.at(min(max(value, low), high))


@dataclass(frozen=True, slots=True)
class Tick:
    """Mark of an axis at a coordinate."""

    at: float
    text: str


def nice_step(span: float, count: int) -> float:
    """Return a round step that divides a span into about `count` parts."""
    if not (math.isfinite(span) and span > 0):
        return 1.0
    rough = span / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * 0.999)


def value_ticks(scale: AxisScale, count: int) -> tuple[Tick, ...]:
    """Return about `count` ticks at round values of a scale."""
    step = nice_step(scale.last - scale.first, count)
    first = math.ceil(scale.first / step - 1e-9)
    last = math.floor(scale.last / step + 1e-9)
    return tuple(
        Tick(scale.at(index * step), _tick_text(index * step, step))
        for index in range(first, last + 1)
    )


def money_ticks(scale: AxisScale, count: int) -> tuple[Tick, ...]:
    """Return about `count` ticks at round amounts of US dollars."""
    ticks = value_ticks(scale, count)
    return tuple(Tick(tick.at, f"${tick.text}") for tick in ticks)


def whole_ticks(scale: AxisScale, count: int) -> tuple[Tick, ...]:
    """Return at most about `count` ticks at whole numbers, the first and last among them."""
    first, last = math.ceil(scale.first), math.floor(scale.last)
    step = max(round(nice_step(last - first or 1, count)), 1)
    wholes = sorted({first, *range(step, last + 1, step), last})
    kept = [whole for whole in wholes if whole in (first, last) or last - whole >= step / 2]
    return tuple(Tick(scale.at(whole), f"{whole:,}") for whole in kept if whole >= first)


def time_ticks(scale: AxisScale, count: int) -> tuple[Tick, ...]:
    """Return ticks at round times (UTC) of a scale of seconds since the Unix epoch."""
    span = scale.last - scale.first
    step = next((step for step in _TIME_STEPS if step * count >= span), _TIME_STEPS[-1])
    first = math.ceil(scale.first / step)
    last = math.floor(scale.last / step)
    return tuple(
        Tick(scale.at(index * step), _time_text(index * step, step))
        for index in range(first, last + 1)
    )


def line(points: Sequence[tuple[float, float]]) -> str:
    """Return points as the attribute of a polyline or a polygon."""
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _tick_text(value: float, step: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * unit:
            return f"{value / unit:,.10g}{name}"
    decimals = max(-math.floor(math.log10(step) + 1e-9), 0)
    rounded = round(value, decimals)
    if decimals > 3 and rounded:
        return f"{rounded:.3g}".replace("e-0", "e-")
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _time_text(at_seconds: float, step: float) -> str:
    moment = datetime.fromtimestamp(at_seconds, UTC)
    if step >= _DAY or at_seconds % _DAY == 0:
        return f"{moment:%d} {moment:%b}"
    return f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"
