"""Answers about a job's size, its cost and an earlier end."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import Conflict
from autoscaler.domain.offer import LimitUnit, Purchase
from autoscaler.domain.plan import Action, ReasonCode
from autoscaler.domain.shards import Unfit, UnfitOffer
from autoscaler.domain.size_bars import BarKind, SizeBar
from autoscaler.service.pages.answers import (
    earlier_ends,
    forbidden_lines,
    job_answers,
    why_lines,
)
from autoscaler.wire.messages import DecisionView
from autoscaler.wire.outlook_messages import (
    CurvePointView,
    CurveView,
    OfferCurveView,
    OutlookView,
    PlannedSizeView,
    QuantilesView,
)

NOW = 1000.0


def point(
    instances: int, goodput: float, usd: float, offer: str = "small", available: bool = True
) -> CurvePointView:
    """Return a point whose price of progress counts an hour as $1."""
    per_million = (instances * usd + 1.0) / goodput * 1e6 / 3600
    allocation = Allocation(offer, instances, 1)
    band = (goodput, goodput)
    return CurvePointView(
        allocation, goodput, band, instances * usd, per_million, None, None, True, available
    )


def curve(*points: CurvePointView, held: int = 0, ground: ReasonCode | None = None) -> CurveView:
    offers = (OfferCurveView("small", "core", Purchase.ON_DEMAND, points),)
    decision = None
    if ground is not None:
        decision = DecisionView(NOW, "a", Action.HOLD, None, None, "", {}, ground)
    return CurveView(
        "a", NOW, offers, held=points[held], decision=decision, value_of_time_usd_per_hour=1.0
    )


def outlook(seconds: float, usd: float, instances: int = 1) -> OutlookView:
    return OutlookView(
        NOW,
        Decimal(1),
        QuantilesView(NOW + seconds, NOW + seconds, (NOW + seconds, NOW + seconds)),
        QuantilesView(usd, usd, (usd, usd)),
        sizes=(PlannedSizeView(NOW, Allocation("small", instances, 1), float(instances)),),
        value_of_time_usd_per_hour=1.0,
    )


def test_the_size_is_explained_by_the_price_of_progress_of_others() -> None:
    points = (point(1, 10, 1.0), point(2, 18, 1.0), point(3, 19, 1.0), point(4, 60, 1.0))
    known = curve(*points[:3], replace(points[3], available=False), held=1)
    text = " ".join(why_lines(known, points[1]))
    assert "At $2.00/h a million useful examples cost about $46 by its model, with" in text
    assert "No other size that can be had now makes an example cheaper" in text
    assert "with an hour of waiting counted as about $1" in text
    assert "One more would make it 6 % faster for $1.00/h more" in text
    assert "each example would cost 26 % more" in text
    assert "1 \u00d7 small costs $1.00/h, but is 44 % slower" in text
    slower = curve(point(1, 10, 1.0), point(2, 8, 1.0))
    assert "One more would make it 20 % slower for $1.00/h more" in " ".join(
        why_lines(slower, slower.offers[0].points[0])
    )
    assert "4 \u00d7 small would make each example 50 % cheaper, but can't be had now" in text


def test_a_better_size_is_named_and_so_is_the_ground_of_the_decision() -> None:
    points = (point(1, 10, 1.0), point(2, 30, 1.0))
    text = " ".join(why_lines(curve(*points, ground=ReasonCode.UNMEASURED), points[0]))
    assert "2 \u00d7 small would make each example 50 % cheaper" in text
    assert "One more would make it 200 % faster for $1.00/h more" in text
    assert "50 % less" in text and "Castor measures this size" in text
    refused = SizeBar(BarKind.REFUSED, "small")
    barred = (points[0], replace(points[1], available=False, forbidden_by=(refused,)))
    assert "It can't be had now (refused by the cloud)." in " ".join(
        why_lines(curve(*barred), barred[0])
    )


def test_an_earlier_end_has_its_price_and_a_useless_one_is_left_out() -> None:
    ends = {2.0: outlook(3600, 10), 5.0: outlook(3000, 12, 2), 20.0: outlook(2990, 40, 9)}

    def ask(value: float) -> OutlookView:
        if value not in ends:
            raise Conflict("the job has ended")
        return ends[value]

    (first,) = earlier_ends(outlook(3600, 10), ask)
    assert (first.sooner_seconds, first.more_usd, first.size) == (600, 2, "2 \u00d7 small")
    assert first.usd_per_hour == 12.0
    ends[20.0], ends[200.0] = outlook(2000, 40, 9), outlook(1000, 80, 20)
    sizes = [end.size for end in earlier_ends(outlook(3600, 10), ask)]
    assert sizes == ["2 \u00d7 small", "20 \u00d7 small"], "the least and the greatest step"


def test_without_a_size_or_an_end_there_are_no_answers() -> None:
    known = curve(point(1, 10, 1.0))
    assert job_answers(known, OutlookView(NOW, Decimal(0)), lambda value: outlook(1, 1)) is None
    held_nothing = replace(known, held=None)
    assert job_answers(held_nothing, outlook(9, 1), lambda value: outlook(1, 1)) is None
    answers = job_answers(known, outlook(9, 1), lambda value: outlook(9, 1))
    assert answers is not None and answers.earlier == () and answers.why


def test_what_forbids_a_size_is_named_once() -> None:
    full = SizeBar(BarKind.LIMIT, "cores", 2, 1, LimitUnit.DEVICES, "castor serve --devices")
    points = (
        point(1, 10, 1.0),
        replace(point(2, 18, 1.0), available=False, forbidden_by=(full,)),
        replace(point(3, 26, 1.0), available=False, forbidden_by=(full,)),
    )
    known = curve(*points)
    assert sum("can't be had now (cores)" in line for line in why_lines(known, points[0])) == 2
    (only,) = forbidden_lines(known, points[0])
    assert only == (
        "The limit cores is 2 devices, of which other jobs hold 1 device (castor serve --devices)."
    )
    memory = UnfitOffer("v100", Unfit.MEMORY, 20e9, 16e9)
    lines = forbidden_lines(replace(known, unfit=(memory,)), points[0])
    assert lines[1] == "This offer can't hold it: v100: a device needs 20 GB and has 16 GB."


def test_a_bound_beyond_the_curve_is_named() -> None:
    most = SizeBar(BarKind.MAXIMUM, maximum=1, unit=LimitUnit.INSTANCES)
    known = replace(curve(point(1, 10, 1.0)), one_more_forbidden_by=most)
    assert known.held is not None
    text = " ".join(why_lines(known, known.held))
    assert "One more can't be had now (instances.max)." in text
    words = "The job may hold 1 instance at most (instances.max of its job file)."
    assert forbidden_lines(known, known.held) == (words,)
