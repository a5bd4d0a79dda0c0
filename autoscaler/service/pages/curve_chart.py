"""Drawing of a job's goodput curve: points of an SVG. Pure.

Each curve of an offer has its own dashes and the offer's name at its end, so that colour is never
the only sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from autoscaler.service.pages.formats import significant
from autoscaler.service.pages.scales import AxisScale, Tick, line, value_ticks, whole_ticks
from autoscaler.wire.outlook_messages import CurvePointView, CurveView, OfferCurveView

MOST_CURVES: Final = 4
"""Curves that are drawn; the table has all."""

_TIMES: Final = "\u00d7"
_LINE_HEIGHT: Final = 14.0
_HEADROOM: Final = 1.06
_MARGIN: Final = 0.05  # left of one instance, as a share of the axis
_NEAR: Final = 40.0
_EQUAL_NAME: Final = 190.0  # length of the name of the line of equal price
# A band that is wider than this multiple of the highest curve is cut off.
_MOST_OF_BAND: Final = 1.6


@dataclass(frozen=True, slots=True)
class DrawingFrame:
    """Size of a drawing, and the place of its axes, in the units of its view box."""

    width: float
    height: float
    left: float = 62.0
    right: float = 150.0
    top: float = 16.0
    bottom: float = 44.0

    @property
    def x_end(self) -> float:
        """Right end of the horizontal axis."""
        return self.width - self.right

    @property
    def y_end(self) -> float:
        """Lower end of the vertical axis."""
        return self.height - self.bottom


WIDE: Final = DrawingFrame(1100.0, 360.0, left=64.0, right=206.0, top=26.0)
NARROW: Final = DrawingFrame(380.0, 310.0, left=46.0, right=16.0, top=26.0)


@dataclass(frozen=True, slots=True)
class OfferLine:
    """Curve of one offer: predicted line, band, and the part that can't be had now."""

    offer: str
    style: int
    is_chosen: bool
    points: str
    beyond: str
    band: str
    label_x: float
    label_y: float


@dataclass(frozen=True, slots=True)
class EqualPrice:
    """Line of equal price of progress for one offer."""

    points: str
    label_x: float
    label_y: float
    anchor: str


@dataclass(frozen=True, slots=True)
class Marked:
    """Marked allocation: its place, the ends of its band, and what is said of it."""

    x: float
    y: float
    low_y: float
    high_y: float
    label: str
    label_x: float
    label_y: float
    anchor: str


@dataclass(frozen=True, slots=True)
class MeasuredDot:
    """Measured goodput of one size."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class CurveChart:
    """All parts of the drawing, in the units of its frame."""

    frame: DrawingFrame
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[OfferLine, ...]
    equal: EqualPrice | None
    dots: tuple[MeasuredDot, ...]
    held: Marked | None
    candidate: Marked | None
    others: int


def curve_chart(view: CurveView, frame: DrawingFrame) -> CurveChart | None:
    """Return the drawing of a curve; None if there is nothing to draw."""
    shown = _shown(view)
    if not shown:
        return None
    points = [point for curve in shown for point in curve.points]
    most = max(point.allocation.instances for point in points)
    highest = _HEADROOM * max(
        _highest(points, view), *(dot.goodput for dot in view.measured), _marked_top(view)
    )
    margin = _MARGIN * max(most - 1.0, 1.0)
    x = AxisScale(1.0 - margin, max(float(most), 1.0 + margin), frame.left, frame.x_end)
    y = AxisScale(0.0, highest, frame.y_end, frame.top)
    lines = tuple(_offer_line(curve, number, x, y, view) for number, curve in enumerate(shown))
    return CurveChart(
        frame=frame,
        x_ticks=whole_ticks(x, 8 if frame is NARROW else 16),
        y_ticks=value_ticks(y, 5),
        lines=_spread(lines, frame),
        equal=_equal_price(shown, view, x, y),
        dots=_dots(view, shown, x, y),
        held=_marked(view.held, "held", x, y, frame),
        candidate=_beside(
            _marked(view.held, "held", x, y, frame),
            _marked(view.candidate, "decided" if view.decided else "best other", x, y, frame),
        ),
        others=len(view.offers) - len(shown),
    )


def _shown(view: CurveView) -> tuple[OfferCurveView, ...]:
    """Return the curves to draw: those in use first, then the fastest for their price."""
    used = {point.allocation.offer for point in (view.held, view.candidate) if point}
    first = [curve for curve in view.offers if curve.offer in used]
    rest = [curve for curve in view.offers if curve.offer not in used and curve.points]
    rest.sort(key=lambda curve: min(point.usd_per_million_examples for point in curve.points))
    return tuple(curve for curve in (*first, *rest)[:MOST_CURVES] if curve.points)


def _highest(points: list[CurvePointView], view: CurveView) -> float:
    """Return the height of the highest curve, or of the highest band that is drawn."""
    highest = max(point.goodput for point in points)
    offer = None if view.held is None else view.held.allocation.offer
    bands = [
        point.goodput_band[1]
        for point in points
        if point.available or point.allocation.offer == offer
    ]
    return max(highest, min(max(bands, default=0.0), _MOST_OF_BAND * highest))


def _marked_top(view: CurveView) -> float:
    return max((point.goodput for point in (view.held, view.candidate) if point), default=0.0)


def _offer_line(
    curve: OfferCurveView, number: int, x: AxisScale, y: AxisScale, view: CurveView
) -> OfferLine:
    places = [(x.at(point.allocation.instances), y.at(point.goodput)) for point in curve.points]
    available = [
        place for place, point in zip(places, curve.points, strict=True) if point.available
    ]
    count = len(available)
    upper = [
        (x.at(point.allocation.instances), y.within(point.goodput_band[1]))
        for point in curve.points
    ]
    lower = [
        (x.at(point.allocation.instances), y.within(point.goodput_band[0]))
        for point in curve.points
    ]
    used = {point.allocation.offer for point in (view.held, view.candidate) if point}
    is_held = view.held is not None and view.held.allocation.offer == curve.offer
    if not is_held:  # a band of what can't be had now would hide the rest
        upper, lower = upper[:count], lower[:count]
    return OfferLine(
        offer=curve.offer,
        style=number,
        is_chosen=curve.offer in used,
        points=line(places[:count]),
        beyond=line(places[max(count - 1, 0) :]),
        band=line([*upper, *reversed(lower)]),
        label_x=places[-1][0] + 8.0,
        label_y=places[-1][1] + 4.0,
    )


def _spread(lines: tuple[OfferLine, ...], frame: DrawingFrame) -> tuple[OfferLine, ...]:
    """Return the lines with labels that do not overlap."""
    placed: list[OfferLine] = []
    lowest = frame.top
    for offer_line in sorted(lines, key=lambda placed_line: placed_line.label_y):
        label_y = max(offer_line.label_y, lowest)
        lowest = label_y + _LINE_HEIGHT
        placed.append(replace(offer_line, label_y=round(label_y, 1)))
    return tuple(sorted(placed, key=lambda placed_line: placed_line.style))


def _equal_price(
    shown: tuple[OfferCurveView, ...], view: CurveView, x: AxisScale, y: AxisScale
) -> EqualPrice | None:
    """Return the line for the offer of the candidate, else for that of the held allocation."""
    point = view.candidate or view.held
    if point is None or view.held is None:
        return None
    curve = next((curve for curve in shown if curve.offer == point.allocation.offer), None)
    if curve is None:
        return None
    places = _up_to(
        y.last,
        [
            (float(other.allocation.instances), other.equal_goodput)
            for other in curve.points
            if other.equal_goodput is not None
        ],
    )
    if len(places) < 2:
        return None
    shown_places = [(x.at(instances), y.at(goodput)) for instances, goodput in places]
    last_x, last_y = shown_places[-1]
    if last_x > x.end - _EQUAL_NAME:
        return EqualPrice(line(shown_places), last_x - 8.0, round(last_y - 8.0, 1), "end")
    return EqualPrice(line(shown_places), last_x + 8.0, round(last_y + 10.0, 1), "start")


def _up_to(most: float, points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of a rising line up to a height, at which it is cut."""
    kept: list[tuple[float, float]] = []
    for place, height in points:
        if height > most:
            if kept and height > kept[-1][1]:
                before, low = kept[-1]
                share = (most - low) / (height - low)
                kept.append((before + share * (place - before), most))
            break
        kept.append((place, height))
    return kept


def _dots(
    view: CurveView, shown: tuple[OfferCurveView, ...], x: AxisScale, y: AxisScale
) -> tuple[MeasuredDot, ...]:
    sizes = {
        (curve.device_kind, point.allocation.instances, point.allocation.devices): curve
        for curve in reversed(shown)
        for point in curve.points
    }
    dots = []
    for size in view.measured:
        curve = sizes.get((size.device_kind, size.instances, size.devices))
        if curve is None:
            continue
        text = (
            f"measured on {size.instances} {_TIMES} {curve.offer}: "
            f"{significant(size.goodput)} examples/s at batch {size.batch:,}"
        )
        dots.append(MeasuredDot(x.at(size.instances), y.at(size.goodput), text))
    return tuple(dots)


def _beside(held: Marked | None, candidate: Marked | None) -> Marked | None:
    """Return the candidate with its label where that of the held allocation is not."""
    if held is None or candidate is None:
        return candidate
    is_near = abs(held.x - candidate.x) < _NEAR and abs(held.y - candidate.y) < _NEAR
    return replace(candidate, label_y=held.y - 15.0) if is_near else candidate


def _marked(
    point: CurvePointView | None, word: str, x: AxisScale, y: AxisScale, frame: DrawingFrame
) -> Marked | None:
    if point is None or not x.first <= point.allocation.instances <= x.last:
        return None
    at_x, at_y = x.at(point.allocation.instances), y.at(point.goodput)
    is_right = at_x > (frame.left + frame.x_end) / 2
    is_held = word == "held"
    anchor = "middle"
    if is_held or at_x < frame.left + 60:
        anchor = "start"
    if at_x > frame.x_end - 60 or (is_held and is_right):
        anchor = "end"
    side = {"start": 13.0, "middle": 0.0, "end": -13.0}[anchor]
    return Marked(
        x=at_x,
        y=at_y,
        low_y=y.within(point.goodput_band[0]),
        high_y=y.within(point.goodput_band[1]),
        label=f"{word}: {point.allocation.instances} {_TIMES}",
        label_x=at_x + side,
        label_y=round(at_y + (20.0 if is_held else -15.0), 1),
        anchor=anchor,
    )
