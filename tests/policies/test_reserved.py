"""Use of paid reservations before any purchase, within their own limit and time."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.conformance.policy import used
from tests.economics.cases import NOW, SMALL, job, snapshot
from tests.economics.strategies import snapshots

OBJECTIVES = (
    *(Objective(each) for each in Preference if each is not Preference.VALUE_OF_TIME),
    Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=40.0),
    Objective(deadline_seconds=NOW + 7200.0),
    Objective(budget_usd=Decimal(5)),
)


def reserved(offer: Offer = SMALL, **changes: object) -> Offer:
    free = replace(offer, purchase=Purchase.RESERVED, usd_per_hour=Decimal(0))
    return replace(free, **{"id": "own", **changes})  # type: ignore[arg-type]


def own(maximum: int, *ids: str) -> Limit:
    return Limit("own instances", LimitUnit.INSTANCES, maximum, frozenset(ids or ("own",)))


def plan(*jobs: JobSnapshot, offers: tuple[Offer, ...], maximum: int = 2) -> Plan:
    return MarginalPolicy().plan(snapshot(*jobs, offers=offers, limits=[own(maximum)]))


def target(found: Plan) -> Allocation | None:
    return found.decisions[0].target


def assert_finite(found: Plan) -> None:
    for decision in found.decisions:
        assert all(math.isfinite(figure) for figure in decision.figures.values())
        assert "nan" not in decision.reason and "inf " not in decision.reason
    assert all(math.isfinite(price) for price in found.shadow_prices.values())


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("held", [None, Allocation("own", 1, 1)])
def test_with_nothing_to_pay_every_job_runs(objective: Objective, held: Allocation | None) -> None:
    found = plan(job("a", held, objective=objective), offers=(reserved(),))
    chosen = target(found)
    assert chosen is not None and chosen.instances <= 2
    assert_finite(found)


def test_the_cheapest_that_costs_nothing_is_the_fastest_of_it() -> None:
    one = job("a", Allocation("own", 1, 1), objective=Objective(Preference.CHEAPEST))
    found = plan(one, offers=(reserved(), SMALL))
    assert target(found) == Allocation("own", 2, 1)
    assert "paid already" in found.decisions[0].reason


def test_a_volume_beside_what_is_paid_is_no_price_of_time() -> None:
    """Else a job that would pay $1/h for its time would hurry at $0.03/h only."""
    extras = {"usd_per_hour": Decimal("0.03"), "extras_usd_per_hour": Decimal("0.03")}
    one = job("a", Allocation("own", 1, 1), objective=Objective(Preference.FASTEST))
    for offers in ((reserved(**extras), SMALL), (reserved(**extras),)):
        with_volume = plan(one, offers=offers)
        without = plan(one, offers=(reserved(), *offers[1:]))
        assert target(with_volume) == target(without)
        assert "paid already" in with_volume.decisions[0].reason


def test_a_job_moves_from_what_it_pays_for_to_what_is_paid() -> None:
    one = job("a", Allocation("local-small", 1, 1), objective=Objective(Preference.CHEAPEST))
    assert target(plan(one, offers=(reserved(), SMALL))) == Allocation("own", 2, 1)


def test_beyond_the_reservation_those_buy_whose_waiting_is_worth_it() -> None:
    jobs = [job(name, Allocation("own", 1, 1)) for name in ("a", "b")]
    hasty = Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=10.0)
    found = plan(*jobs, job("c", objective=hasty), offers=(reserved(), SMALL), maximum=2)
    held = [decision.target for decision in found.decisions]
    assert sum(each.instances for each in held if each is not None and each.offer == "own") <= 2
    assert held[2] is not None and held[2].offer == "local-small"


@given(snapshots(jobs=3, draws=2))
@settings(max_examples=15)
def test_whatever_is_reserved_the_plan_is_finite_and_within_it(moment: Snapshot) -> None:
    first, *others = moment.offers
    offers = (reserved(first, id=first.id, reclaims_per_hour=0.0), *others)
    limit = own(2, first.id)
    for some in (offers, tuple(reserved(each, id=each.id) for each in moment.offers)):
        free = replace(moment, offers=some, limits=(limit,))
        found = MarginalPolicy().plan(free)
        assert used(limit, free, found) <= 2
        assert_finite(found)


def test_what_ends_is_left_in_time_and_not_begun_again() -> None:
    ends = reserved(until_seconds=NOW + 600.0)
    on = job("a", Allocation("own", 1, 1), objective=Objective(Preference.CHEAPEST))
    moment = snapshot(on, offers=(ends, SMALL), limits=[own(2)])
    policy = MarginalPolicy()
    lasting = target(policy.plan(moment))
    assert lasting is not None and lasting.offer == "own"
    late = replace(moment, now_seconds=NOW + 600.0 - SMALL.boot_seconds - moment.replan_seconds)
    for held in (on.held, None):
        held_now = replace(on, held=held, trained=held)
        left = target(policy.plan(replace(late, jobs=(held_now,))))
        assert left is not None and left.offer == "local-small"
    alone = replace(late, offers=(ends,))
    assert target(policy.plan(alone)) is None
