"""Drawings of a study: stays of its trials by instance, and its best value by cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.study_stay import StudyStay
from autoscaler.service.pages.curve_chart import DrawingFrame
from autoscaler.service.pages.formats import billed, significant
from autoscaler.service.pages.scales import (
    AxisScale,
    Tick,
    line,
    money_ticks,
    time_ticks,
    value_ticks,
)
from autoscaler.wire.study_messages import StudyHistoryView

STAYS: Final = DrawingFrame(1100.0, 0.0, left=190.0, right=14.0, top=8.0, bottom=30.0)
BEST: Final = DrawingFrame(540.0, 300.0, left=64.0, right=20.0, top=26.0)
MOST_ROWS: Final = 60
_ROW: Final = 18.0
_HEADROOM: Final = 1.05


@dataclass(frozen=True, slots=True)
class StayBar:
    """Bar of one stay; `style` differs between trials that follow each other."""

    x: float
    width: float
    style: int
    job: str
    text: str


@dataclass(frozen=True, slots=True)
class StaysRow:
    """Row of one instance; `ended_x` is where it was released, None while it is held."""

    instance: str
    offer: str
    y: float
    bars: tuple[StayBar, ...]
    ended_x: float | None


@dataclass(frozen=True, slots=True)
class StaysChart:
    """Stays by instance on one axis of time; `left_out` are rows beyond `MOST_ROWS`."""

    frame: DrawingFrame
    height: float
    rows: tuple[StaysRow, ...]
    x_ticks: tuple[Tick, ...]
    left_out: int


def stays_chart(stays: Sequence[StudyStay], now_seconds: float) -> StaysChart | None:
    """Return the drawing of the stays of a study's trials; None without any."""
    if not stays:
        return None
    frame = STAYS
    ends = [now_seconds if stay.to_seconds is None else stay.to_seconds for stay in stays]
    first_seconds = min(stay.from_seconds for stay in stays)
    until_seconds = max(*ends, first_seconds + 1.0)
    x = AxisScale(first_seconds, until_seconds, frame.left, frame.x_end)
    by_instance: dict[str, list[StudyStay]] = {}
    for stay in stays:
        by_instance.setdefault(stay.instance, []).append(stay)
    shown = list(by_instance.items())[:MOST_ROWS]
    rows = tuple(
        _row(instance, of_instance, frame.top + _ROW * number, x, now_seconds)
        for number, (instance, of_instance) in enumerate(shown)
    )
    height = frame.top + _ROW * len(rows) + frame.bottom
    left_out = len(by_instance) - len(rows)
    return StaysChart(frame, height, rows, time_ticks(x, 6), left_out)


def _row(
    instance: str, stays: Sequence[StudyStay], y: float, x: AxisScale, now_seconds: float
) -> StaysRow:
    bars = []
    for number, stay in enumerate(stays):
        end_seconds = now_seconds if stay.to_seconds is None else stay.to_seconds
        begin, end = x.at(stay.from_seconds), x.at(end_seconds)
        hours = (end_seconds - stay.from_seconds) / 3600.0
        text = f"{stay.job} on {stay.offer}, {significant(60 * hours)} min"
        bars.append(StayBar(begin, max(round(end - begin, 1), 1.5), number % 2, stay.job, text))
    last = stays[-1].to_seconds
    return StaysRow(
        instance=instance,
        offer=stays[-1].offer,
        y=y,
        bars=tuple(bars),
        ended_x=None if last is None else x.at(last),
    )


@dataclass(frozen=True, slots=True)
class BestDot:
    """Improvement of the best value."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class BestChart:
    """Best value against the cost of all trials so far."""

    frame: DrawingFrame
    points: str
    dots: tuple[BestDot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def best_chart(view: StudyHistoryView) -> BestChart | None:
    """Return the drawing of the best value by cost; None before the first report."""
    if not view.best:
        return None
    spent_usd = max(view.spent_usd[-1], view.best[-1].spent_usd)
    values = [best.value for best in view.best]
    low, high = min(values), max(values)
    margin = (high - low or abs(high) or 1.0) * (_HEADROOM - 1.0)
    x = AxisScale(0.0, _HEADROOM * spent_usd or 1.0, BEST.left, BEST.x_end)
    y = AxisScale(low - margin, high + margin, BEST.y_end, BEST.top)
    places: list[tuple[float, float]] = []
    for best in view.best:
        if places:
            places.append((x.at(best.spent_usd), places[-1][1]))
        places.append((x.at(best.spent_usd), y.at(best.value)))
    places.append((x.at(spent_usd), places[-1][1]))
    dots = tuple(
        BestDot(
            x.at(best.spent_usd),
            y.at(best.value),
            f"{significant(best.value)} by {best.job} after {billed(best.spent_usd)}",
        )
        for best in view.best
    )
    return BestChart(BEST, line(places), dots, money_ticks(x, 5), value_ticks(y, 4))
