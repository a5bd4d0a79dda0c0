"""Limits of a fleet, prospects, time axis and slow values of pages."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clock import VirtualClock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from autoscaler.domain.report import ReportSample
from autoscaler.domain.size_bars import BarKind, SizeBar
from autoscaler.domain.time_use import CostCategory
from autoscaler.service.pages.background import Background
from autoscaler.service.pages.fleet_summary import (
    BarredStep,
    FleetCount,
    barred_step,
    block_groups,
    limit_lines,
)
from autoscaler.service.pages.prospects import course_of, productive_share, prospect_of
from autoscaler.service.pages.time_axis import axis_of
from autoscaler.wire.cost_messages import CategoryView, CostSplitView, ReceiptView
from autoscaler.wire.outlook_messages import (
    CurvePointView,
    CurveView,
    OfferCurveView,
    OutlookView,
)
from tests.controller.cloud import offer

NOW = 1000.0
OUTLOOK = OutlookView(NOW, Decimal(0))


def status(**changes: object) -> ControllerStatus:
    known = ControllerStatus(offers=(offer(),), ticked_seconds=NOW)
    return replace(known, **changes)  # type: ignore[arg-type]


def test_a_limit_that_holds_jobs_back_has_its_shadow_price_in_words() -> None:
    limits = (
        Limit("quota", LimitUnit.DEVICES, 96),
        Limit("fleet", LimitUnit.USD_PER_HOUR, 80.0),
        Limit("spare", LimitUnit.INSTANCES, 0),
    )
    known = status(limits=limits, shadow_prices={"quota": 14.2 / 3600})
    count = FleetCount()
    count.offers["small"] = 96
    first, *rest = limit_lines(known, count)
    assert (first.name, first.use) == ("quota", "96 of 96 devices")
    assert first.sentence == "One more device is worth about $14 an hour, waiting counted."
    assert [line.sentence for line in rest if line.name == "spare"] == [
        "Full, but more is worth nothing now."
    ]


def point(instances: int, goodput: float, available: bool = True) -> CurvePointView:
    allocation = Allocation("small", instances, 1)
    band = (goodput, goodput)
    return CurvePointView(
        allocation, goodput, band, float(instances), 1.0, None, None, True, available
    )


def curve(*points: CurvePointView, held: int) -> CurveView:
    offers = (OfferCurveView("small", "core", Purchase.ON_DEMAND, points),)
    return CurveView("a", NOW, offers, held=points[held], value_of_time_usd_per_hour=1.0)


def test_a_step_pays_if_it_makes_each_example_cheaper() -> None:
    prospect = prospect_of(OUTLOOK, curve(point(1, 10), point(2, 18), point(3, 19), held=1), ())
    assert prospect.last is not None and prospect.next is not None
    # 8 more for $1, against 10 for $1 and $1 of waiting; then 1 more for $1, against 18 for $3.
    assert prospect.last.worth == 8 / (10 / 2) and prospect.last.pays
    assert prospect.next.worth == 1 / (18 / 3) and not prospect.next.pays


@pytest.mark.parametrize(("goodput", "share"), [(2.0, 0.0), (15.0, 0.5), (40.0, 1.0)])
def test_the_bar_of_a_step_stays_in_its_frame(goodput: float, share: float) -> None:
    """Draw a step that loses goodput, whose worth is below 0, and one of great worth."""
    step = prospect_of(OUTLOOK, curve(point(1, 10), point(2, goodput), held=0), ()).next
    assert step is not None and step.worth is not None
    assert (step.worth < 0) is (goodput < 10) and step.bar_share == share


def test_the_first_instance_has_no_worth_and_the_last_one_no_step_beyond() -> None:
    prospect = prospect_of(OUTLOOK, curve(point(1, 10), held=0), ())
    assert prospect.last is not None and prospect.last.worth is None
    assert prospect.next is None
    assert prospect_of(OUTLOOK, CurveView("a", NOW), ()).offer is None


def test_blocks_tell_spot_from_on_demand() -> None:
    held = HeldInstance(
        *("a-0-1", "a", 0, 1, "small", 1, Decimal(1)),
        *(Desired.PRESENT, InstancePhase.TRAINING, NOW),
    )
    spot = replace(offer(), id="small-spot", purchase=Purchase.SPOT)
    both = (held, replace(held, id="a-1-1", offer="small-spot"))
    groups = block_groups(both, {"small": offer(), "small-spot": spot})
    assert [group.offer for group in groups] == ["small", "small (spot)"]


def test_a_limit_without_a_shadow_price_has_the_worth_of_the_step_that_it_forbids() -> None:
    bar = SizeBar(BarKind.LIMIT, "quota")
    steps = [
        barred_step(job, prospect_of(OUTLOOK, curve(point(1, 10), barred, held=0), ()))
        for job, barred in (
            ("pays", replace(point(2, 30, available=False), forbidden_by=(bar,))),
            ("does-not", replace(point(2, 11, available=False), forbidden_by=(bar,))),
            ("twice", replace(point(2, 99, available=False), forbidden_by=(bar, bar))),
            ("free", point(2, 99)),
        )
    ]
    # 20 more for $1, against 10 for $1 and $1 of waiting: $4 of progress for $1.
    step, *others = steps
    assert step == BarredStep("pays", "quota", "small", 3.0) and others == [None] * 3
    limits = (Limit("quota", LimitUnit.DEVICES, 2), Limit("fleet", LimitUnit.USD_PER_HOUR, 80.0))
    devices = offer().devices
    quota, fleet = limit_lines(status(limits=limits), FleetCount(), (step,))
    assert quota.worth_usd_per_hour == 3.0 / devices
    assert re.search(r"is worth about \$\S+ an hour to pays, waiting counted", quota.sentence)
    assert fleet.sentence == "More is worth nothing now."
    shadow = status(limits=limits, shadow_prices={"quota": 1.0})
    assert "to pays" not in limit_lines(shadow, FleetCount(), (step,))[0].sentence


def receipt(useful: float, unknown: float) -> ReceiptView:
    parts = (
        CategoryView(CostCategory.USEFUL, useful, Decimal(0), 0.0),
        CategoryView(CostCategory.UNKNOWN, unknown, Decimal(0), 0.0),
    )
    return ReceiptView("a", False, CostSplitView(Decimal(0), 100, None, parts))


def test_the_useful_share_is_that_of_all_jobs_and_unknown_with_too_little() -> None:
    assert productive_share(()) is None
    assert productive_share((receipt(90.0, 0.0), receipt(50.0, 20.0))) == 0.7
    assert productive_share((receipt(0.0, 90.0),)) is None


def sample(at_seconds: float, progress: float) -> ReportSample:
    return ReportSample(at_seconds, progress, 32)


def test_the_course_is_the_mean_goodput_of_equal_intervals() -> None:
    samples = [sample(0.0, 0.0), sample(100.0, 1000.0), sample(200.0, 1000.0)]
    course = course_of(samples)
    assert len(course) == 40 and course[0] == 10.0 and course[-1] == 0.0
    assert abs(sum(course) * 5.0 - 1000.0) < 1e-6
    assert course_of(samples[:2]) == () and course_of([sample(1.0, 1.0)] * 3) == ()


@given(st.lists(st.floats(NOW, NOW + 1e7), max_size=20), st.lists(st.floats(0, 1e9), max_size=5))
def test_an_axis_holds_most_ends_and_few_marks(ends: list[float], deadlines: list[float]) -> None:
    axis = axis_of([(end, end) for end in ends], deadlines, NOW)
    assert NOW <= axis.first_seconds < axis.last_seconds and len(axis.marks) <= 4
    assert sum(axis.is_beyond(end) for end in ends) <= max(0.2 * len(ends), 0)
    assert all(0 <= axis.at(end) <= 100 for end in ends)
    assert all(axis.first_seconds <= end for end in ends if end > NOW)


def test_an_axis_is_as_long_as_what_is_predicted() -> None:
    minutes = axis_of([(NOW + 60, NOW + 100), (NOW + 120, NOW + 150)], [NOW + 7200], NOW)
    assert minutes.last_seconds - NOW == 150 * 1.08 and minutes.is_beyond(NOW + 7200)
    assert (minutes.first_seconds, minutes.first_text) == (NOW, "now")
    assert [text for _, text in minutes.marks] == ["in 1 min", "in 2 min"]
    near = axis_of([(NOW + 60, NOW + 100)], [NOW + 300, NOW - 50], NOW)
    assert not near.is_beyond(NOW + 300)
    assert axis_of([], [], NOW).last_seconds == NOW + 20
    assert not axis_of([], [NOW + 9000], NOW).is_beyond(NOW + 9000)


def test_an_axis_begins_before_its_first_event_if_that_is_far() -> None:
    hours = axis_of([(NOW + 7500, NOW + 7900), (NOW + 8000, NOW + 9000)], [], NOW)
    assert hours.first_text == "in 2 h" and hours.first_seconds == NOW + 7200
    assert [text for _, text in hours.marks] == ["in 2 h 30 min"]
    alone = axis_of([(NOW + 7500, NOW + 7900)], [], NOW)
    assert alone.first_text == "now"
    soon = axis_of([(NOW + 600, NOW + 700), (NOW + 8000, NOW + 9000)], [], NOW)
    assert soon.first_text == "now"


def test_a_slow_value_is_shown_as_it_was_until_the_next_one_is_there() -> None:
    clock, may_go, numbers = VirtualClock(0.0), Event(), iter(range(9))

    def compute(key: str) -> int:
        number = next(numbers)
        if number == 1:
            may_go.wait(60)
        return number

    with ThreadPoolExecutor(1) as workers:
        slow = Background[str, int](compute, 5.0, workers, clock)
        assert slow.get("a", 10.0) == 0 and slow.get("a") == 0
        clock.advance(6.0)
        assert slow.get("a") == 0, "the next value is not there yet"
        may_go.set()
        assert slow.get("a", 10.0) == 1


def test_a_value_that_fails_is_none_and_is_tried_again() -> None:
    clock, results = VirtualClock(0.0), iter([ZeroDivisionError(), 7])

    def compute(key: str) -> int:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    with ThreadPoolExecutor(1) as workers:
        slow = Background[str, int](compute, 5.0, workers, clock)
        assert slow.get("a", 10.0) is None
        clock.advance(6.0)
        assert slow.get("a", 10.0) == 7
