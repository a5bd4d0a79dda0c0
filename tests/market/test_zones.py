from __future__ import annotations

import pytest

from autoscaler.domain.offer import Purchase
from autoscaler.market.zones import (
    HORIZON_SECONDS,
    HoldingPeriod,
    LaunchAttempt,
    PlaceEstimate,
    PlaceObservations,
    PurchasePlace,
    beliefs,
    fill_seconds,
)

HOUR = 3600.0
NOW = 100 * HOUR
A, B = (PurchasePlace("aws", "p3.2xlarge", zone, Purchase.SPOT) for zone in "ab")
FIXED = PurchasePlace("aws", "p3.2xlarge", "a", Purchase.ON_DEMAND)
TOLD = {A: 0.2, B: 0.2}


def reclaimed(count: int, lasted: float = HOUR) -> PlaceObservations:
    starts = [NOW - 20 * HOUR - 2 * HOUR * n for n in range(count)]
    return PlaceObservations(
        holdings=tuple(HoldingPeriod(start, start + lasted, True) for start in starts)
    )


def refused(*at_seconds: float) -> PlaceObservations:
    return PlaceObservations(
        asks=tuple(LaunchAttempt(seconds, was_filled=False) for seconds in at_seconds)
    )


def test_where_nothing_was_seen_the_provider_is_believed_and_there_is_capacity() -> None:
    belief = beliefs({}, TOLD, NOW)[A]
    assert belief.reclaims_per_hour() == pytest.approx(0.2, rel=0.35)
    assert belief.reclaims_per_hour(8 * HOUR) < belief.reclaims_per_hour()
    assert belief.fill_probability == 1.0


def test_reclaims_raise_the_hazard_there_and_less_in_other_zones_of_the_type() -> None:
    calm = beliefs({}, TOLD, NOW)
    known = beliefs({A: reclaimed(10)}, TOLD, NOW)
    assert known[A].reclaims_per_hour() > known[B].reclaims_per_hour()
    assert known[B].reclaims_per_hour() > 1.5 * calm[B].reclaims_per_hour()


def test_what_is_given_back_is_no_reclaim() -> None:
    given = PlaceObservations(holdings=(HoldingPeriod(NOW - 40 * HOUR, NOW, was_reclaimed=False),))
    known, calm = beliefs({A: given}, TOLD, NOW), beliefs({}, TOLD, NOW)
    assert known[A].reclaims_per_hour() < calm[A].reclaims_per_hour()


def test_reclaims_that_the_provider_does_not_tell_of_are_believed_once_seen() -> None:
    told = {A: 0.0, FIXED: 0.0}
    lost = {A: reclaimed(1), FIXED: reclaimed(1)}
    assert beliefs({}, told, NOW)[A].reclaims_per_hour() == 0.0
    assert beliefs(lost, told, NOW)[A].reclaims_per_hour() > 0.1
    assert beliefs(lost, told, NOW)[FIXED].reclaims_per_hour() == 0.0


def test_one_that_refused_is_out_and_likelier_back_with_time() -> None:
    seen = {A: refused(NOW)}
    chances = [
        beliefs(seen, TOLD, NOW + later)[A].fill_probability for later in (0, 600, HOUR, 9 * HOUR)
    ]
    assert chances[0] == 0.0
    assert chances == sorted(chances)
    assert chances[-1] < 1.0
    assert beliefs(seen, TOLD, NOW)[B].fill_probability == 1.0


def test_one_that_reclaimed_is_out_until_it_is_launched_again() -> None:
    lost = HoldingPeriod(NOW - HOUR, NOW, True)
    out = PlaceObservations(asks=(LaunchAttempt(NOW - HOUR, True),), holdings=(lost,))
    assert beliefs({A: out}, TOLD, NOW)[A].fill_probability == 0.0
    back = PlaceObservations((*out.asks, LaunchAttempt(NOW + 60, True)), out.holdings)
    assert beliefs({A: back}, TOLD, NOW + 60)[A].fill_probability == 1.0


def test_the_longer_it_has_been_out_the_longer_is_waited_for_it() -> None:
    short = beliefs({A: refused(NOW)}, TOLD, NOW)[A]
    every = [NOW - 300 * n for n in range(24)]
    long = beliefs({A: refused(*every)}, TOLD, NOW)[A]
    assert 60 < fill_seconds([short]) < fill_seconds([long]) <= HORIZON_SECONDS


def test_short_outages_make_the_wait_short_and_so_do_more_places() -> None:
    asks = []
    for n in range(20):
        start = NOW - 30 * HOUR + n * HOUR
        asks += [
            LaunchAttempt(start, False),
            LaunchAttempt(start + 240, False),
            LaunchAttempt(start + 300, True),
        ]
    brief = beliefs({A: PlaceObservations((*asks, LaunchAttempt(NOW, False)))}, TOLD, NOW)[A]
    usual = beliefs({A: refused(NOW)}, TOLD, NOW)[A]
    assert fill_seconds([brief]) < 0.5 * fill_seconds([usual])
    assert fill_seconds([usual, usual]) < 0.7 * fill_seconds([usual])


def test_an_outage_that_nobody_watched_is_not_counted_to_its_end() -> None:
    def outage_of(asks: tuple[LaunchAttempt, ...]) -> PlaceEstimate:
        return beliefs({A: PlaceObservations((*asks, LaunchAttempt(NOW, False)))}, TOLD, NOW)[A]

    days_later = outage_of(
        (LaunchAttempt(NOW - 90 * HOUR, False), LaunchAttempt(NOW - 20 * HOUR, True))
    )
    nothing = outage_of(())
    assert fill_seconds([days_later]) == pytest.approx(fill_seconds([nothing]), rel=0.1)


def test_of_two_zones_the_one_whose_instances_live_longer_is_more_useful() -> None:
    seen = {A: reclaimed(10, lasted=600.0), B: reclaimed(10, lasted=2 * HOUR)}
    known = beliefs(seen, TOLD, NOW)
    assert known[B].useful_share(180.0, 60.0) > known[A].useful_share(180.0, 60.0)
