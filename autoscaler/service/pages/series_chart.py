"""Drawing of a job's history: panels on one axis of time, with decisions as ticks. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.service.pages.curve_chart import DrawingFrame
from autoscaler.service.pages.formats import significant
from autoscaler.service.pages.scales import AxisScale, Tick, line, time_ticks, value_ticks
from autoscaler.wire.messages import DecisionView
from autoscaler.wire.outlook_messages import HistoryView

WIDE_SERIES: Final = DrawingFrame(1100.0, 0.0, left=64.0, right=14.0, top=26.0, bottom=28.0)
NARROW_SERIES: Final = DrawingFrame(380.0, 0.0, left=46.0, right=8.0, top=26.0, bottom=28.0)
_PANEL: Final = 78.0
_GAP: Final = 30.0
_HEADROOM: Final = 1.12
_MOST_TICKS: Final = 60


@dataclass(frozen=True, slots=True)
class SeriesLine:
    """One line of a panel in pieces without gaps; `area` fills it down to 0 if not empty."""

    name: str
    style: int
    pieces: tuple[str, ...]
    area: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: a title with unit and last value, an axis and lines."""

    title: str
    top: float
    bottom: float
    ticks: tuple[Tick, ...]
    lines: tuple[SeriesLine, ...]


@dataclass(frozen=True, slots=True)
class DecisionTick:
    """Decision on the axis of time; `anchor` is that of its sentence in the list."""

    x: float
    anchor: str
    text: str
    action: str


@dataclass(frozen=True, slots=True)
class SeriesChart:
    """All panels, in the units of the frame."""

    frame: DrawingFrame
    height: float
    panels: tuple[Panel, ...]
    x_ticks: tuple[Tick, ...]
    decisions: tuple[DecisionTick, ...]


def decision_anchor(decision: DecisionView) -> str:
    """Return the name of a decision's place on the page of its job."""
    return f"decision-{round(decision.at_seconds * 1000)}"


def series_chart(view: HistoryView, frame: DrawingFrame) -> SeriesChart | None:
    """Return the drawing of a history; None for less than two points of time."""
    if len(view.times) < 2:
        return None
    x = AxisScale(view.times[0], view.times[-1], frame.left, frame.width - frame.right)
    panels, top = [], frame.top
    for title, lines in _panels(view):
        panels.append(_panel(title, lines, view.times, x, top))
        top += _PANEL + _GAP
    bottom = top - _GAP
    moved = [decision for decision in view.decisions if decision.current != decision.target]
    return SeriesChart(
        frame=frame,
        height=bottom + frame.bottom,
        panels=tuple(panels),
        x_ticks=time_ticks(x, 6 if frame is WIDE_SERIES else 4),
        decisions=tuple(
            DecisionTick(
                x.within(decision.at_seconds),
                decision_anchor(decision),
                decision.reason,
                decision.action,
            )
            for decision in moved[-_MOST_TICKS:]
        ),
    )


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of one line; `is_stepped`: each holds until the next one."""

    name: str
    values: Sequence[float | None]
    is_stepped: bool = False
    is_filled: bool = False


def _panels(view: HistoryView) -> Iterator[tuple[str, list[_Values]]]:
    """Yield title and lines of each panel that has values."""
    held = [_Values(offer, counts, True, True) for offer, counts in view.instances.items()]
    yield "Instances", held or [_Values("none", [0] * len(view.times), True)]
    if _has(view.goodput):
        yield "Goodput, useful examples/s (measured)", [_Values("goodput", view.goodput)]
    if _has(view.batch):
        lines = [_Values("batch", view.batch, True)]
        if _has(view.noise_examples):
            lines.append(_Values("noise scale", view.noise_examples))
        yield "Batch and noise scale, examples", lines
    if any(view.learning_rate):
        yield "Learning rate", [_Values("learning rate", view.learning_rate, True)]
    if _has(view.loss):
        yield "Loss, as the script reports it", [_Values("loss", view.loss)]
    yield "Price, $/h", [_Values("price", view.usd_per_hour, True)]


def _has(values: Iterable[float | None]) -> bool:
    return any(value is not None for value in values)


def _panel(
    title: str, lines: list[_Values], times: Sequence[float], x: AxisScale, top: float
) -> Panel:
    finite = [value for shown in lines for value in shown.values if value is not None]
    low, high = min(0.0, *finite), max(finite, default=0.0)
    y = AxisScale(low, low + (_HEADROOM * (high - low) or 1.0), top + _PANEL, top)
    return Panel(
        title=title,
        top=top,
        bottom=top + _PANEL,
        ticks=_ticks(y, all(isinstance(value, int) for value in finite)),
        lines=tuple(
            _series_line(shown, number, times, x, y) for number, shown in enumerate(lines[:5])
        ),
    )


def _ticks(scale: AxisScale, is_whole: bool) -> tuple[Tick, ...]:
    """Return ticks of a panel, at whole numbers only if its values are counts."""
    ticks = value_ticks(scale, 3)
    return tuple(tick for tick in ticks if not is_whole or "." not in tick.text)


def _series_line(
    values: _Values, style: int, times: Sequence[float], x: AxisScale, y: AxisScale
) -> SeriesLine:
    places = [
        (x.at(at_seconds), y.at(value))
        for at_seconds, value in zip(times, values.values, strict=True)
        if value is not None and math.isfinite(value)
    ]
    points = _stepped(places) if values.is_stepped else places
    area = ""
    if values.is_filled and points:
        base = y.at(0.0)
        area = line([(points[0][0], base), *points, (points[-1][0], base)])
    last = next((value for value in reversed(values.values) if value is not None), None)
    number = f"{last:,}" if isinstance(last, int) else significant(last)
    name = values.name if last is None else f"{values.name} {number}"
    return SeriesLine(name, style, (line(points),) if points else (), area)


def _stepped(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the places with a corner before each change, without repeated heights."""
    points: list[tuple[float, float]] = []
    for x, y in places:
        if points and points[-1][1] != y:
            points.append((x, points[-1][1]))
        elif len(points) > 1 and points[-2][1] == y:
            points.pop()
        points.append((x, y))
    return points
