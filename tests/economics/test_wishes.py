from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts
from autoscaler.economics.supply import supply_of
from autoscaler.economics.wishes import Why, Wish, wish
from tests.economics import naive
from tests.economics.cases import LARGE, NOW, SMALL, THETA, job, model, offer, snapshot, valued
from tests.economics.strategies import sizes_of, snapshots

ONE = Allocation("local-small", 1, 1)
TWO = Allocation("local-small", 2, 1)


def wish_of(one: JobSnapshot, moment: Snapshot) -> Wish:
    supply = supply_of(moment)
    room = supply.maximum - supply.uses(each.held for each in moment.jobs)
    return wish(one, supply, room)


def target_of(one: JobSnapshot, moment: Snapshot) -> Allocation | None:
    found = wish_of(one, moment)
    return None if found.target is None else found.at.candidates.allocation(found.target)


@given(snapshots())
def test_the_choice_is_the_least_cost_over_everything(moment: Snapshot) -> None:
    (one,) = moment.jobs
    value = (one.objective.value_of_time_usd_per_hour or 0.0) / 3600
    work = one.remaining_examples or 0.0
    costs = {
        each: naive.cost(one, moment, value, work, each)
        for each in sizes_of(moment.offers, one.instances)
        if naive.goodput(one, moment, each) > 0
    }
    found = target_of(one, moment)
    if not costs:
        assert found is None
        return
    assert found is not None
    assert costs[found] == pytest.approx(min(costs.values()))
    if one.held in costs and costs[one.held] <= min(costs.values()) * (1 + 1e-12):
        assert found == one.held


def test_a_first_start_with_a_deadline_does_not_wait_for_capacity() -> None:
    waits = offer("spot", "0.03", reclaims_per_hour=0.2, fill_seconds=900.0)
    one = job(models=model(measured=()), instances=InstanceBounds(1, 1))
    spot, firm = Allocation("spot", 1, 1), Allocation("local-small", 1, 1)
    moment = snapshot(one, offers=(waits, SMALL))
    assert target_of(one, moment) == spot
    hurried = replace(one, objective=Objective(deadline_seconds=NOW + 7200.0))
    assert target_of(hurried, moment) == firm
    assert target_of(hurried, snapshot(hurried, offers=(waits,))) == spot
    known = replace(hurried, models={"core": model()})
    assert target_of(known, moment) == spot, "it can be told that there is time"


def times(offer: Offer, factor: int) -> Offer:
    """An offer at so many times its price, and those of the ways to and from it."""
    return replace(
        offer,
        usd_per_hour=offer.usd_per_hour * factor,
        upload_usd_per_gb=offer.upload_usd_per_gb * factor,
        download_usd_per_gb=offer.download_usd_per_gb * factor,
    )


def alone(one: JobSnapshot, value_usd_per_hour: float) -> JobSnapshot:
    """A long job that holds nothing: its choice is by the price of progress alone."""
    return replace(
        one,
        held=None,
        trained=None,
        remaining_examples=1e13,
        objective=valued(value_usd_per_hour),
    )


def chosen(one: JobSnapshot, moment: Snapshot) -> tuple[float, float]:
    """Price and goodput of the choice."""
    target = target_of(one, moment)
    assert target is not None
    return naive.price(one, moment, target), naive.goodput(one, moment, target)


@given(snapshots(), st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_price_and_goodput_of_the_choice_do_not_fall_with_the_value_of_time(
    moment: Snapshot, one_value: float, other_value: float
) -> None:
    low, high = sorted((one_value, other_value))
    one = moment.jobs[0]
    assume(target_of(alone(one, 1.0), moment) is not None)
    price, rate = chosen(alone(one, low), moment)
    price_then, rate_then = chosen(alone(one, high), moment)
    assert rate_then >= rate * (1 - 1e-6)
    assert price_then >= price * (1 - 1e-6) or rate_then == pytest.approx(rate)


@given(snapshots())
def test_no_value_of_time_buys_the_cheapest_progress_and_an_endless_one_the_fastest(
    moment: Snapshot,
) -> None:
    one = moment.jobs[0]
    assume(target_of(alone(one, 1.0), moment) is not None)
    every = [
        (naive.price(one, moment, each), naive.goodput(one, moment, each))
        for each in sizes_of(moment.offers, one.instances)
        if naive.goodput(one, moment, each) > 0
    ]
    price, rate = chosen(alone(one, 0.0), moment)
    assert price / rate == pytest.approx(min(p / g for p, g in every))
    assert chosen(alone(one, 1e9), moment)[1] == pytest.approx(max(g for _, g in every), rel=1e-6)


@given(snapshots(), st.floats(0.0, 10.0), st.sampled_from([2, 10, 1000]))
def test_scaling_every_price_and_the_value_of_time_changes_nothing(
    moment: Snapshot, value: float, factor: int
) -> None:
    one = moment.jobs[0]
    dearer = replace(moment, offers=tuple(times(each, factor) for each in moment.offers))
    before = target_of(replace(one, objective=valued(value)), moment)
    after = target_of(replace(one, objective=valued(value * factor)), dearer)
    if before != after:
        costs = [
            naive.cost(one, moment, value / 3600, one.remaining_examples or 0.0, each)
            for each in (before, after)
            if each is not None
        ]
        assert costs[0] == pytest.approx(costs[1])


@given(snapshots(), st.floats(0.0, 10.0))
def test_a_dominated_offer_is_never_chosen(moment: Snapshot, value: float) -> None:
    one = alone(moment.jobs[0], value)
    first = moment.offers[0]
    worse = replace(first, id="worse", usd_per_hour=first.usd_per_hour + Decimal("0.01"))
    found = target_of(one, replace(moment, offers=(*moment.offers, worse)))
    assert found is None or found.offer != "worse"


@given(snapshots(draws=4), st.floats(1.0, 50.0))
def test_dearer_changes_never_cause_a_change(moment: Snapshot, factor: float) -> None:
    (one,) = moment.jobs
    assume(all(o.reclaims_per_hour == 0 for o in moment.offers))
    if target_of(one, moment) != one.held or one.held is None:
        return
    costs = one.switching
    slower = replace(
        moment,
        offers=tuple(replace(o, boot_seconds=factor * o.boot_seconds) for o in moment.offers),
    )
    dearer = replace(costs, pause_seconds=factor * costs.pause_seconds)
    assert target_of(replace(one, switching=dearer), slower) == one.held


def test_equal_offers_are_not_changed_for_each_other() -> None:
    twin = replace(SMALL, id="twin")
    for held in (TWO, Allocation("twin", 2, 1)):
        one = job(held=held, instances=InstanceBounds(1, 2))
        assert target_of(one, snapshot(one, offers=(SMALL, twin))) == held


def test_what_is_under_way_is_left_to_come() -> None:
    one = job(held=Allocation("local-small", 4, 1), trained=ONE, objective=valued(0.0))
    found = wish_of(one, snapshot(one))
    assert found.why is Why.UNDER_WAY
    assert found.target == found.at.candidates.held
    eligible = [str(found.at.candidates.allocation(i)) for i in np.nonzero(found.eligible)[0]]
    assert eligible == [f"{n} x local-small" for n in (1, 2, 3, 4)]


def test_what_was_bought_to_be_measured_is_measured() -> None:
    one = job(held=TWO, models=model(measured=[(1, 1)]), objective=valued(0.0))
    found = wish_of(one, snapshot(one))
    assert (found.why, found.target) == (Why.UNMEASURED, found.at.candidates.held)
    measured = replace(one, models={"core": model(measured=[(1, 1), (2, 2)])})
    assert target_of(measured, snapshot(one)) == ONE


def test_bounds_go_before_what_is_under_way() -> None:
    one = job(held=Allocation("local-small", 4, 1), trained=ONE, instances=InstanceBounds(1, 2))
    target = target_of(one, snapshot(one))
    assert target is not None
    assert target.instances <= 2


def test_the_first_start_is_on_the_cheapest() -> None:
    one = job(models=model(measured=()), objective=Objective(Preference.CHEAPEST))
    found = wish_of(one, snapshot(one))
    assert (found.why, target_of(one, snapshot(one))) == (Why.FIRST_START, ONE)


def test_one_that_was_measured_starts_where_it_costs_least() -> None:
    one = job(spent_usd=0.01, remaining_examples=1e6)
    assert wish_of(one, snapshot(one)).why is Why.LEAST_COST
    assert target_of(one, snapshot(one)) == Allocation("local-large", 2, 2)


def test_an_unmeasured_size_is_tried_for_its_way_back_and_not_twice() -> None:
    # Two devices synchronise at once or hardly ever, and within 3 s that is known.
    slow = replace(THETA, alpha_across_seconds=2.0)
    unsure = replace(model(measured=[(1, 1)], draws=4), draws=(THETA, slow, slow, slow))
    one = job(
        held=ONE,
        models=unsure,
        instances=InstanceBounds(1, 2),
        switching=SwitchingCosts(0.05, 3.0, measure_seconds=3.0),
    )
    moment = snapshot(one, offers=(SMALL,))
    found = wish_of(one, moment)
    mean = found.cost.mean(axis=0)
    assert mean[1] > mean[0]
    assert target_of(one, moment) == TWO
    sizes = frozenset({(1, 1), (2, 2)})
    known = replace(one, models={"core": replace(unsure, measured=sizes)})
    assert target_of(known, moment) == ONE
    turned_out = replace(unsure, draws=(slow,) * 4, measured=sizes)
    there = replace(one, held=TWO, trained=TWO, models={"core": turned_out})
    assert target_of(there, moment) == ONE


def test_short_dwell_ends_changes_that_do_not_pay_within_it() -> None:
    one = job(held=ONE, remaining_examples=1e6)
    assert target_of(one, snapshot(one)) != ONE
    flipping = replace(one, switching=replace(one.switching, dwell_seconds=7.0))
    assert target_of(flipping, snapshot(one)) == ONE


def test_what_nobody_offers_any_more_is_held_on() -> None:
    gone = job(held=Allocation("gone", 2, 1))
    assert wish_of(gone, snapshot(gone)).why is Why.HOLDS_UNKNOWN
    card = job(held=Allocation("card", 1, 1))
    moment = snapshot(card, offers=(SMALL, offer("card", kind="card")))
    assert wish_of(card, moment).why is Why.HOLDS_UNKNOWN
    beyond = replace(gone, instances=InstanceBounds(1, 1))
    assert wish_of(beyond, snapshot(beyond)).why is not Why.HOLDS_UNKNOWN


def test_nothing_allowed_is_nothing_wished() -> None:
    one = job(instances=InstanceBounds(offers=("none",)))
    found = wish_of(one, snapshot(one))
    assert (found.why, found.target) == (Why.NOTHING_ALLOWED, None)


def test_a_waiting_job_bids_more_with_time_and_never_nothing() -> None:
    cheap = job(objective=Objective(Preference.CHEAPEST))
    bid = wish_of(cheap, snapshot(cheap)).bid
    assert bid * 3600 == pytest.approx(0.001)
    later = replace(cheap, waited_seconds=3600.0 * 9)
    assert wish_of(later, snapshot(later)).bid == pytest.approx(10 * bid)
    dear = job(objective=valued(5.0), waited_seconds=3600.0)
    assert wish_of(dear, snapshot(dear)).bid * 3600 == pytest.approx(5.0)


def test_a_finished_job_is_left_alone() -> None:
    one = job(held=TWO, remaining_examples=0.0)
    assert target_of(one, snapshot(one)) == TWO


def test_a_deadline_holds_the_cheaper_until_the_dearer_is_due() -> None:
    one = job(held=ONE, objective=Objective(deadline_seconds=NOW + 85.0))
    moment = snapshot(one, offers=(SMALL,), replan_seconds=2.0)
    found = wish_of(one, moment)
    assert found.aim.stages is not None
    assert (found.why, target_of(one, moment)) == (Why.STAGES, ONE)
    order_seconds = found.aim.stages.order_seconds
    later = replace(
        moment,
        now_seconds=NOW + order_seconds - 1.0,
        jobs=(replace(one, remaining_examples=9000.0 - 100 * (order_seconds - 1.0)),),
    )
    assert target_of(later.jobs[0], later) == found.at.candidates.allocation(found.aim.stages.then)
    # In a shared fleet it asks for no more than it holds.
    assert found.at.candidates.usd_per_second[found.eligible].max() * 3600 == pytest.approx(0.10)


def test_offers_of_other_devices_are_weighed_too() -> None:
    fast = offer("card", "0.50", kind="card")
    theta = model().point
    card = model(replace(theta, beta_compute_seconds_per_example=0.001), kind="card")
    one = job(held=ONE, models={"core": model(), "card": card}, remaining_examples=1e6)
    assert target_of(one, snapshot(one, offers=(SMALL, LARGE, fast))) is not None
    assert str(target_of(one, snapshot(one, offers=(SMALL, LARGE, fast)))).endswith("card")


def test_what_a_deadline_needs_is_bid_for_with_all_that_may_be_bid() -> None:
    most = pytest.approx(10 * 4 * 0.19)
    wants = Objective(deadline_seconds=NOW + 200.0)
    unmeasured = job(objective=wants, models=model(measured=()))
    found = wish_of(unmeasured, snapshot(unmeasured))
    assert (found.why, found.bid * 3600) == (Why.FIRST_START, most)
    price = found.at.candidates.usd_per_second
    assert price[found.eligible].max() == price[found.target]
    endless = job(held=ONE, objective=wants, remaining_examples=None)
    found = wish_of(endless, snapshot(endless))
    assert (found.why, found.bid * 3600) == (Why.LEAST_COST, most)
    price = found.at.candidates.usd_per_second
    assert price[found.eligible].max() == price[found.target]
    measured = job(held=ONE, objective=wants)
    found = wish_of(measured, snapshot(measured))
    assert (found.why, found.bid * 3600) == (Why.STAGES, most)
    assert found.aim.value_of_time == 0.0
    late = job(held=ONE, objective=Objective(deadline_seconds=NOW + 15.0))
    assert wish_of(late, snapshot(late)).bid * 3600 == pytest.approx(0.10)
