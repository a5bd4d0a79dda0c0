"""Answers to three questions about a job: why this size, what it costs, and what more would buy.

Pure, from the job's curve and outlooks. All figures but the price are predicted by its model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.errors import CastorError
from autoscaler.domain.plan import ReasonCode
from autoscaler.domain.size_bars import BarKind, SizeBar
from autoscaler.service.pages.formats import allocated, percent, predicted, rate
from autoscaler.service.pages.size_bars import bar_text, forbidden_names
from autoscaler.wire.outlook_messages import CurvePointView, CurveView, OutlookView

# Values of an hour, as multiples of the present one, that are tried for an earlier end.
_FACTORS: Final = (2.0, 5.0, 20.0, 200.0)
_LEAST_SOONER_SHARE: Final = 0.02
_LEAST_SOONER_SECONDS: Final = 5.0
# Costs of an example that differ by less are called equal.
_SAME_SHARE: Final = 0.005
_MOST_ROWS: Final = 2
_GROUNDS: Final[Mapping[ReasonCode, str]] = {
    ReasonCode.STAGES: "It is the cheapest plan that keeps the deadline.",
    ReasonCode.OUTBID: "Other jobs compete with it for what the limits leave.",
    ReasonCode.UNMEASURED: "Castor measures this size before it relies on its prediction.",
    ReasonCode.BOOTING: "Instances of the last change are still starting.",
    ReasonCode.UNDER_WAY: "The last change is still under way.",
    ReasonCode.SLOWED: "A shared budget makes each dollar count more for it.",
    ReasonCode.BUDGET_USED_UP: "A shared budget leaves nothing more.",
    ReasonCode.STUDY: "Its study shares instances among all its trials.",
}


@dataclass(frozen=True, slots=True)
class EarlierEnd:
    """Earlier end that can be had: the outlook, and how much sooner and dearer its median is."""

    outlook: OutlookView
    sooner_seconds: float
    more_usd: float

    @property
    def usd_per_hour(self) -> float:
        """Cost of each hour by which it ends earlier."""
        return self.more_usd / self.sooner_seconds * 3600.0

    @property
    def size(self) -> str:
        """Largest allocation that it takes."""
        sizes = self.outlook.sizes
        dearest = max(sizes, key=lambda size: size.usd_per_hour, default=None)
        allocation = None if dearest is None else dearest.allocation
        return "" if allocation is None else allocated(allocation)


@dataclass(frozen=True, slots=True)
class JobAnswers:
    """Answers about a running job.

    `why` are sentences on its size, `earlier` earlier ends, the cheapest first; empty: none can be
    had now. `forbidden` says what forbids faster sizes.
    """

    why: tuple[str, ...]
    earlier: tuple[EarlierEnd, ...]
    forbidden: tuple[str, ...] = ()


def job_answers(
    curve: CurveView, outlook: OutlookView, ask: Callable[[float], OutlookView]
) -> JobAnswers | None:
    """Return the answers; None if nothing is held, or the end can't be predicted.

    `ask` returns the outlook if an hour were worth so many dollars.
    """
    if curve.held is None or outlook.finish_seconds is None:
        return None
    return JobAnswers(
        why_lines(curve, curve.held),
        earlier_ends(outlook, ask),
        forbidden_lines(curve, curve.held),
    )


def why_lines(curve: CurveView, held: CurvePointView) -> tuple[str, ...]:
    """Return sentences on why a job has its allocation."""
    others = [
        point
        for offer in curve.offers
        for point in offer.points
        if point.allocation != held.allocation
    ]
    value = curve.value_of_time_usd_per_hour or 0.0
    counted = f", with an hour of waiting counted as {predicted(value)}" if value > 0 else ""
    lines = [
        f"At {rate(held.usd_per_hour)} a million useful examples cost "
        f"{predicted(held.usd_per_million_examples)} by its model{counted}.",
        *_cheapest(others, held),
        *_one_more(others, held, curve.one_more_forbidden_by),
        *_cheaper(others, held),
        *_barred(others, held),
    ]
    ground = ReasonCode.NONE if curve.decision is None else ReasonCode(curve.decision.ground)
    if ground in _GROUNDS:
        lines.append(_GROUNDS[ground])
    return tuple(lines)


def _cheapest(others: list[CurvePointView], held: CurvePointView) -> list[str]:
    """Return how its price of progress compares with that of the sizes that can be had."""
    best = _least_dear([point for point in others if point.available])
    if best is None or _change(best, held) > -_SAME_SHARE:
        return ["No other size that can be had now makes an example cheaper."]
    cheaper = percent(-_change(best, held))
    return [
        f"{_name(best)} would make each example {cheaper} cheaper, the cost of the change left "
        "aside."
    ]


def _cheaper(others: list[CurvePointView], held: CurvePointView) -> list[str]:
    """Return what the best size of a lower price would lose."""
    lower = [p for p in others if p.available and p.usd_per_hour < 0.99 * held.usd_per_hour]
    best = _least_dear(lower)
    if best is None or _change(best, held) < _SAME_SHARE or held.goodput <= best.goodput:
        return []
    slower = percent(1 - best.goodput / held.goodput)
    return [
        f"{_name(best)} costs {rate(best.usd_per_hour)}, but is {slower} slower: "
        f"{_verdict(best, held)}."
    ]


def _barred(others: list[CurvePointView], held: CurvePointView) -> list[str]:
    """Return the best size that can't be had now, if it beats all that can."""
    barred = _least_dear([point for point in others if not point.available])
    best = _least_dear([held, *(point for point in others if point.available)])
    if barred is None or best is None or _change(barred, best) > -_SAME_SHARE:
        return []
    return [
        f"{_name(barred)} would make each example {percent(-_change(barred, held))} cheaper, but "
        f"can't be had now ({forbidden_names(barred.forbidden_by)})."
    ]


def forbidden_lines(curve: CurveView, held: CurvePointView) -> tuple[str, ...]:
    """Return what forbids the sizes that are faster than the held one, each reason once."""
    bars = [
        bar
        for offer in curve.offers
        for point in offer.points
        if point.goodput > held.goodput
        for bar in point.forbidden_by
    ]
    if curve.one_more_forbidden_by is not None:
        bars.append(curve.one_more_forbidden_by)
    first: dict[tuple[BarKind, str], SizeBar] = {}
    for bar in bars:
        first.setdefault((bar.kind, bar.name), bar)
    texts = [bar_text(bar) for bar in first.values()]
    texts += [f"this offer can't hold it: {offer}" for offer in curve.unfit]
    return tuple(f"{text[0].upper()}{text[1:]}." for text in texts)


def _one_more(
    others: list[CurvePointView], held: CurvePointView, beyond: SizeBar | None
) -> list[str]:
    """Return what one more instance of the same offer would add."""
    wanted = held.allocation.instances + 1
    more = next(
        (
            point
            for point in others
            if point.allocation.offer == held.allocation.offer
            and point.allocation.instances == wanted
        ),
        None,
    )
    if more is None:
        return [] if beyond is None else [f"One more can't be had now ({beyond.title})."]
    change = more.goodput / held.goodput - 1 if held.goodput > 0 else 0.0
    faster = f"{percent(abs(change))} {'faster' if change >= 0 else 'slower'}"
    dearer = rate(more.usd_per_hour - held.usd_per_hour)
    names = forbidden_names(more.forbidden_by)
    barred = "" if more.available else f" It can't be had now ({names})."
    return [f"One more would make it {faster} for {dearer} more: {_verdict(more, held)}.{barred}"]


def _verdict(point: CurvePointView, held: CurvePointView) -> str:
    """Return how much an example would cost beside now, in words."""
    change = _change(point, held)
    if abs(change) < _SAME_SHARE:
        return "each example would cost the same"
    return f"each example would cost {percent(abs(change))} {'more' if change > 0 else 'less'}"


def _name(point: CurvePointView) -> str:
    return allocated(point.allocation)


def _least_dear(points: list[CurvePointView]) -> CurvePointView | None:
    return min(points, key=lambda point: point.usd_per_million_examples, default=None)


def _change(point: CurvePointView, held: CurvePointView) -> float:
    """Return by which share an example would cost more than now."""
    return point.usd_per_million_examples / held.usd_per_million_examples - 1


def earlier_ends(
    outlook: OutlookView, ask: Callable[[float], OutlookView]
) -> tuple[EarlierEnd, ...]:
    """Return the least and the greatest step to an earlier end that can be had."""
    if outlook.finish_seconds is None or outlook.total_usd is None:
        return ()
    value = outlook.value_of_time_usd_per_hour or 0.0
    price = max((size.usd_per_hour for size in outlook.sizes), default=0.0)
    median = outlook.finish_seconds.median
    least = max(_LEAST_SOONER_SECONDS, _LEAST_SOONER_SHARE * (median - outlook.at_seconds))
    ends: list[EarlierEnd] = []
    for factor in _FACTORS:
        try:
            assumed = ask(factor * max(value, price, 1.0))
        except CastorError:
            continue
        if assumed.finish_seconds is None or assumed.total_usd is None:
            continue
        sooner = median - assumed.finish_seconds.median
        if sooner >= (ends[-1].sooner_seconds if ends else 0.0) + least:
            more_usd = assumed.total_usd.median - outlook.total_usd.median
            ends.append(EarlierEnd(assumed, sooner, more_usd))
    return tuple(ends if len(ends) <= _MOST_ROWS else (ends[0], ends[-1]))
