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
from autoscaler.economics.choice.demands import ChoiceReason, Demand, demand
from autoscaler.economics.supply.supply import supply_of
from tests.economics import naive
from tests.economics.cases import LARGE, NOW, SMALL, THETA, job, model, offer, snapshot, valued
from tests.economics.strategies import sizes_of, snapshots

ONE = Allocation("local-small", 1, 1)
TWO = Allocation("local-small", 2, 1)


def wish_of(job_snapshot: JobSnapshot, moment: Snapshot) -> Demand:
    supply = supply_of(moment)
    room = supply.maximum - supply.uses(other_job.held for other_job in moment.jobs)
    return demand(job_snapshot, supply, room)


def target_of(job_snapshot: JobSnapshot, moment: Snapshot) -> Allocation | None:
    choice = wish_of(job_snapshot, moment)
    return None if choice.target is None else choice.at.candidates.allocation(choice.target)


@given(snapshots())
def test_the_choice_is_the_least_cost_over_everything(moment: Snapshot) -> None:
    (job_snapshot,) = moment.jobs
    value = (job_snapshot.objective.value_of_time_usd_per_hour or 0.0) / 3600
    work = job_snapshot.remaining_examples or 0.0
    costs = {
        allocation: naive.cost(job_snapshot, moment, value, work, allocation)
        for allocation in sizes_of(moment.offers, job_snapshot.instances)
        if naive.goodput(job_snapshot, moment, allocation) > 0
    }
    target = target_of(job_snapshot, moment)
    if not costs:
        assert target is None
        return
    assert target is not None
    assert costs[target] == pytest.approx(min(costs.values()))
    if job_snapshot.held in costs and costs[job_snapshot.held] <= min(costs.values()) * (
        1 + 1e-12
    ):
        assert target == job_snapshot.held


def test_a_first_start_with_a_deadline_does_not_wait_for_capacity() -> None:
    waits = offer("spot", "0.03", reclaims_per_hour=0.2, fill_seconds=900.0)
    job_snapshot = job(models=model(measured=()), instances=InstanceBounds(1, 1))
    spot, firm = Allocation("spot", 1, 1), Allocation("local-small", 1, 1)
    moment = snapshot(job_snapshot, offers=(waits, SMALL))
    assert target_of(job_snapshot, moment) == spot
    hurried = replace(job_snapshot, objective=Objective(deadline_seconds=NOW + 7200.0))
    assert target_of(hurried, moment) == firm
    assert target_of(hurried, snapshot(hurried, offers=(waits,))) == spot
    known = replace(hurried, models={"core": model()})
    assert target_of(known, moment) == spot, "it can be told that there is time"


def times(offer: Offer, factor: int) -> Offer:
    """Return an offer with all its prices multiplied by a factor."""
    return replace(
        offer,
        usd_per_hour=offer.usd_per_hour * factor,
        upload_usd_per_gb=offer.upload_usd_per_gb * factor,
        download_usd_per_gb=offer.download_usd_per_gb * factor,
    )


def alone(job_snapshot: JobSnapshot, value_usd_per_hour: float) -> JobSnapshot:
    """Return a long job that holds nothing, so that it chooses by the price of progress alone."""
    return replace(
        job_snapshot,
        held=None,
        trained=None,
        remaining_examples=1e13,
        objective=valued(value_usd_per_hour),
    )


def chosen(job_snapshot: JobSnapshot, moment: Snapshot) -> tuple[float, float]:
    """Return price and goodput of the choice."""
    target = target_of(job_snapshot, moment)
    assert target is not None
    return naive.price(job_snapshot, moment, target), naive.goodput(job_snapshot, moment, target)


@given(snapshots(), st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_price_and_goodput_of_the_choice_do_not_fall_with_the_value_of_time(
    moment: Snapshot, one_value: float, other_value: float
) -> None:
    low, high = sorted((one_value, other_value))
    job_snapshot = moment.jobs[0]
    assume(target_of(alone(job_snapshot, 1.0), moment) is not None)
    price, rate = chosen(alone(job_snapshot, low), moment)
    price_then, rate_then = chosen(alone(job_snapshot, high), moment)
    assert rate_then >= rate * (1 - 1e-6)
    assert price_then >= price * (1 - 1e-6) or rate_then == pytest.approx(rate)


@given(snapshots())
def test_no_value_of_time_buys_the_cheapest_progress_and_an_endless_one_the_fastest(
    moment: Snapshot,
) -> None:
    job_snapshot = moment.jobs[0]
    assume(target_of(alone(job_snapshot, 1.0), moment) is not None)
    prices_and_rates = [
        (
            naive.price(job_snapshot, moment, allocation),
            naive.goodput(job_snapshot, moment, allocation),
        )
        for allocation in sizes_of(moment.offers, job_snapshot.instances)
        if naive.goodput(job_snapshot, moment, allocation) > 0
    ]
    price, rate = chosen(alone(job_snapshot, 0.0), moment)
    assert price / rate == pytest.approx(
        min(price_of_one / rate_of_one for price_of_one, rate_of_one in prices_and_rates)
    )
    assert chosen(alone(job_snapshot, 1e9), moment)[1] == pytest.approx(
        max(rate_of_one for _, rate_of_one in prices_and_rates), rel=1e-6
    )


@given(snapshots(), st.floats(0.0, 10.0), st.sampled_from([2, 10, 1000]))
def test_scaling_every_price_and_the_value_of_time_changes_nothing(
    moment: Snapshot, value: float, factor: int
) -> None:
    job_snapshot = moment.jobs[0]
    dearer = replace(moment, offers=tuple(times(sold, factor) for sold in moment.offers))
    before = target_of(replace(job_snapshot, objective=valued(value)), moment)
    after = target_of(replace(job_snapshot, objective=valued(value * factor)), dearer)
    if before != after:
        costs = [
            naive.cost(
                job_snapshot,
                moment,
                value / 3600,
                job_snapshot.remaining_examples or 0.0,
                allocation,
            )
            for allocation in (before, after)
            if allocation is not None
        ]
        assert costs[0] == pytest.approx(costs[1])


@given(snapshots(), st.floats(0.0, 10.0))
def test_a_dominated_offer_is_never_chosen(moment: Snapshot, value: float) -> None:
    job_snapshot = alone(moment.jobs[0], value)
    first = moment.offers[0]
    worse = replace(first, id="worse", usd_per_hour=first.usd_per_hour + Decimal("0.01"))
    target = target_of(job_snapshot, replace(moment, offers=(*moment.offers, worse)))
    assert target is None or target.offer != "worse"


@given(snapshots(draws=4), st.floats(1.0, 50.0))
def test_dearer_changes_never_cause_a_change(moment: Snapshot, factor: float) -> None:
    (job_snapshot,) = moment.jobs
    assume(all(o.reclaims_per_hour == 0 for o in moment.offers))
    if target_of(job_snapshot, moment) != job_snapshot.held or job_snapshot.held is None:
        return
    costs = job_snapshot.switching
    slower = replace(
        moment,
        offers=tuple(replace(o, boot_seconds=factor * o.boot_seconds) for o in moment.offers),
    )
    dearer = replace(costs, pause_seconds=factor * costs.pause_seconds)
    assert target_of(replace(job_snapshot, switching=dearer), slower) == job_snapshot.held


def test_equal_offers_are_not_changed_for_each_other() -> None:
    twin = replace(SMALL, id="twin")
    for held in (TWO, Allocation("twin", 2, 1)):
        job_snapshot = job(held=held, instances=InstanceBounds(1, 2))
        assert target_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL, twin))) == held


def test_what_is_under_way_is_left_to_come() -> None:
    job_snapshot = job(held=Allocation("local-small", 4, 1), trained=ONE, objective=valued(0.0))
    choice = wish_of(job_snapshot, snapshot(job_snapshot))
    assert choice.why is ChoiceReason.UNDER_WAY
    assert choice.target == choice.at.candidates.held
    eligible = [str(choice.at.candidates.allocation(i)) for i in np.nonzero(choice.eligible)[0]]
    assert eligible == [f"{n} x local-small" for n in (1, 2, 3, 4)]


def test_what_was_bought_to_be_measured_is_measured() -> None:
    job_snapshot = job(held=TWO, models=model(measured=[(1, 1)]), objective=valued(0.0))
    choice = wish_of(job_snapshot, snapshot(job_snapshot))
    assert (choice.why, choice.target) == (ChoiceReason.UNMEASURED, choice.at.candidates.held)
    measured = replace(job_snapshot, models={"core": model(measured=[(1, 1), (2, 2)])})
    assert target_of(measured, snapshot(job_snapshot)) == ONE


def test_bounds_go_before_what_is_under_way() -> None:
    job_snapshot = job(
        held=Allocation("local-small", 4, 1), trained=ONE, instances=InstanceBounds(1, 2)
    )
    target = target_of(job_snapshot, snapshot(job_snapshot))
    assert target is not None
    assert target.instances <= 2


def test_the_first_start_is_on_the_cheapest() -> None:
    job_snapshot = job(models=model(measured=()), objective=Objective(Preference.CHEAPEST))
    choice = wish_of(job_snapshot, snapshot(job_snapshot))
    assert (choice.why, target_of(job_snapshot, snapshot(job_snapshot))) == (
        ChoiceReason.FIRST_START,
        ONE,
    )


def test_one_that_was_measured_starts_where_it_costs_least() -> None:
    job_snapshot = job(spent_usd=0.01, remaining_examples=1e6)
    assert wish_of(job_snapshot, snapshot(job_snapshot)).why is ChoiceReason.LEAST_COST
    assert target_of(job_snapshot, snapshot(job_snapshot)) == Allocation("local-large", 2, 2)


def test_an_unmeasured_size_is_tried_for_its_way_back_and_not_twice() -> None:
    # Two devices synchronise either at once or very slowly, and 3 s suffice to measure which.
    slow = replace(THETA, alpha_across_seconds=2.0)
    unsure = replace(model(measured=[(1, 1)], draws=4), draws=(THETA, slow, slow, slow))
    job_snapshot = job(
        held=ONE,
        models=unsure,
        instances=InstanceBounds(1, 2),
        switching=SwitchingCosts(0.05, 3.0, measure_seconds=3.0),
    )
    moment = snapshot(job_snapshot, offers=(SMALL,))
    choice = wish_of(job_snapshot, moment)
    mean = choice.cost.mean(axis=0)
    assert mean[1] > mean[0]
    assert target_of(job_snapshot, moment) == TWO
    sizes = frozenset({(1, 1), (2, 2)})
    known = replace(job_snapshot, models={"core": replace(unsure, measured=sizes)})
    assert target_of(known, moment) == ONE
    turned_out = replace(unsure, draws=(slow,) * 4, measured=sizes)
    there = replace(job_snapshot, held=TWO, trained=TWO, models={"core": turned_out})
    assert target_of(there, moment) == ONE


def test_short_dwell_ends_changes_that_do_not_pay_within_it() -> None:
    job_snapshot = job(held=ONE, remaining_examples=1e6)
    assert target_of(job_snapshot, snapshot(job_snapshot)) != ONE
    flipping = replace(job_snapshot, switching=replace(job_snapshot.switching, dwell_seconds=7.0))
    assert target_of(flipping, snapshot(job_snapshot)) == ONE


def test_what_nobody_offers_any_more_is_held_on() -> None:
    gone = job(held=Allocation("gone", 2, 1))
    assert wish_of(gone, snapshot(gone)).why is ChoiceReason.HOLDS_UNKNOWN
    card = job(held=Allocation("card", 1, 1))
    moment = snapshot(card, offers=(SMALL, offer("card", kind="card")))
    assert wish_of(card, moment).why is ChoiceReason.HOLDS_UNKNOWN
    beyond = replace(gone, instances=InstanceBounds(1, 1))
    assert wish_of(beyond, snapshot(beyond)).why is not ChoiceReason.HOLDS_UNKNOWN


def test_nothing_allowed_is_nothing_wished() -> None:
    job_snapshot = job(instances=InstanceBounds(offers=("none",)))
    choice = wish_of(job_snapshot, snapshot(job_snapshot))
    assert (choice.why, choice.target) == (ChoiceReason.NOTHING_ALLOWED, None)


def test_a_waiting_job_bids_more_with_time_and_never_nothing() -> None:
    cheap = job(objective=Objective(Preference.CHEAPEST))
    bid = wish_of(cheap, snapshot(cheap)).bid
    assert bid * 3600 == pytest.approx(0.001)
    later = replace(cheap, waited_seconds=3600.0 * 9)
    assert wish_of(later, snapshot(later)).bid == pytest.approx(10 * bid)
    dear = job(objective=valued(5.0), waited_seconds=3600.0)
    assert wish_of(dear, snapshot(dear)).bid * 3600 == pytest.approx(5.0)


def test_a_finished_job_is_left_alone() -> None:
    job_snapshot = job(held=TWO, remaining_examples=0.0)
    assert target_of(job_snapshot, snapshot(job_snapshot)) == TWO


def test_a_deadline_holds_the_cheaper_until_the_dearer_is_due() -> None:
    job_snapshot = job(held=ONE, objective=Objective(deadline_seconds=NOW + 85.0))
    moment = snapshot(job_snapshot, offers=(SMALL,), replan_seconds=2.0)
    choice = wish_of(job_snapshot, moment)
    assert choice.requirement.stages is not None
    assert (choice.why, target_of(job_snapshot, moment)) == (ChoiceReason.STAGES, ONE)
    order_seconds = choice.requirement.stages.order_seconds
    later = replace(
        moment,
        now_seconds=NOW + order_seconds - 1.0,
        jobs=(replace(job_snapshot, remaining_examples=9000.0 - 100 * (order_seconds - 1.0)),),
    )
    assert target_of(later.jobs[0], later) == choice.at.candidates.allocation(
        choice.requirement.stages.then
    )
    # In a shared fleet the job requests no more than it holds.
    assert choice.at.candidates.usd_per_second[choice.eligible].max() * 3600 == pytest.approx(0.10)


def test_offers_of_other_devices_are_weighed_too() -> None:
    fast = offer("card", "0.50", kind="card")
    theta = model().point
    card = model(replace(theta, beta_compute_seconds_per_example=0.001), kind="card")
    job_snapshot = job(held=ONE, models={"core": model(), "card": card}, remaining_examples=1e6)
    assert target_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL, LARGE, fast))) is not None
    assert str(
        target_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL, LARGE, fast)))
    ).endswith("card")


def test_what_a_deadline_needs_is_bid_for_with_all_that_may_be_bid() -> None:
    most = pytest.approx(10 * 4 * 0.19)
    wants = Objective(deadline_seconds=NOW + 200.0)
    unmeasured = job(objective=wants, models=model(measured=()))
    choice = wish_of(unmeasured, snapshot(unmeasured))
    assert (choice.why, choice.bid * 3600) == (ChoiceReason.FIRST_START, most)
    price = choice.at.candidates.usd_per_second
    assert price[choice.eligible].max() == price[choice.target]
    endless = job(held=ONE, objective=wants, remaining_examples=None)
    choice = wish_of(endless, snapshot(endless))
    assert (choice.why, choice.bid * 3600) == (ChoiceReason.LEAST_COST, most)
    price = choice.at.candidates.usd_per_second
    assert price[choice.eligible].max() == price[choice.target]
    measured = job(held=ONE, objective=wants)
    choice = wish_of(measured, snapshot(measured))
    assert (choice.why, choice.bid * 3600) == (ChoiceReason.STAGES, most)
    assert choice.requirement.value_of_time == 0.0
    late = job(held=ONE, objective=Objective(deadline_seconds=NOW + 15.0))
    assert wish_of(late, snapshot(late)).bid * 3600 == pytest.approx(0.10)
