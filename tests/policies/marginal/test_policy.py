from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import SolverError
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.supply.supply import supply_of
from autoscaler.policies.marginal import limit_sharing as decomposition
from autoscaler.policies.marginal.exact import SolverLimits
from autoscaler.policies.marginal.fleet import MarginalParameters, plan_fleet
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.conformance.policy import PolicyConformance, used
from tests.economics.cases import (
    LARGE,
    SMALL,
    devices,
    job,
    model,
    offer,
    snapshot,
    valued,
)
from tests.economics.choice.test_demands import target_of
from tests.economics.strategies import snapshots

ONE = Allocation("local-small", 1, 1)
TWO = Allocation("local-small", 2, 1)


class TestMarginal(PolicyConformance):
    @pytest.fixture
    def policy(self) -> MarginalPolicy:
        return MarginalPolicy()


class TestMarginalByShadowPrices(PolicyConformance):
    @pytest.fixture
    def policy(self) -> MarginalPolicy:
        return MarginalPolicy(MarginalParameters(SolverLimits(exact_jobs=0)))


def plan(moment: Snapshot) -> Plan:
    return MarginalPolicy().plan(moment)


def decisions(moment: Snapshot) -> dict[str, Decision]:
    return {decision.job: decision for decision in plan(moment).decisions}


@given(snapshots(jobs=4, draws=2))
@settings(max_examples=50)
def test_without_a_limit_each_job_gets_its_own_best(moment: Snapshot) -> None:
    found = plan(moment)
    wide = replace(moment, limits=(Limit("wide", LimitUnit.DEVICES, 1e6),))
    limited = plan(wide)
    for one, decision in zip(moment.jobs, found.decisions, strict=True):
        assert decision.target == target_of(one, moment)
    assert [d.target for d in limited.decisions] == [d.target for d in found.decisions]
    assert limited.shadow_prices == {"wide": 0.0}
    assert limited.gap_usd_per_second == 0.0


@given(snapshots(jobs=3, is_limited=True))
@settings(max_examples=60)
def test_few_jobs_share_limits_for_the_most_surplus(moment: Snapshot) -> None:
    supply = supply_of(moment)
    found = plan_fleet(moment.jobs, supply, MarginalParameters())
    assume(len(found.groups) == len(moment.jobs))
    if found.division is None:
        assert supply.bears(supply.uses(found.targets.values()))
        return
    options = []
    for group, (surplus, nothing) in zip(found.groups, found.worths, strict=True):
        (columns,) = np.nonzero(group.eligible[0])
        options.append(
            [(float(nothing[0]), np.zeros(len(moment.limits)))]
            + [(float(surplus[0, i]), group.uses[:, 0, i]) for i in columns.tolist()]
        )
    best = max(
        sum(value for value, _ in choice)
        for choice in itertools.product(*options)
        if supply.bears(sum((uses for _, uses in choice), np.zeros(len(moment.limits))))
    )
    standings = found.standings()
    assert float(standings.given.value.sum()) == pytest.approx(best, rel=1e-6, abs=1e-12)
    assert supply.bears(standings.given.uses.sum(axis=1))


def test_a_second_job_gets_a_share_and_the_first_grows_again_when_it_ends() -> None:
    first = job("first", TWO)
    limits = [devices(2)]
    alone = decisions(snapshot(first, offers=(SMALL,), limits=limits))["first"]
    assert alone.reason == "hold first at 2 x local-small: no room: local devices 2 of 2 in use"
    both = snapshot(first, job("second"), offers=(SMALL,), limits=limits)
    found = decisions(both)
    assert (found["first"].action, found["first"].target) == (Action.SHRINK, ONE)
    assert "/h to second, $" in found["first"].reason
    assert "local devices: a device is worth $" in found["first"].reason
    assert (found["second"].action, found["second"].target) == (Action.START, ONE)
    assert found["second"].release_first
    assert plan(both).shadow_prices["local devices"] > 0
    later = decisions(snapshot(job("first", ONE), offers=(SMALL,), limits=limits))["first"]
    assert (later.action, later.target) == (Action.GROW, TWO)
    assert not later.release_first


def test_the_bid_that_wins_is_the_higher() -> None:
    moment = snapshot(job("first", TWO), job("second"), offers=(SMALL,), limits=[devices(2)])
    words = decisions(moment)["first"].reason.split()
    bid, worth = (float(word.strip("$/h")) for word in words if word.startswith("$"))
    assert bid > worth


def test_a_minimum_that_wins_at_a_lower_bid_is_named_as_the_cause() -> None:
    saturated = model(ThroughputParameters(0.0, 0.01, 0.3, 0.1, 0.3, 0.1, 1.0))
    low = job("low", ONE, models=saturated, objective=valued(0.5), instances=InstanceBounds(2, 2))
    high = job("high", ONE, objective=valued(0.1), instances=InstanceBounds(1, 1))
    moment = snapshot(low, high, offers=(SMALL,), limits=[devices(2)])
    found = decisions(moment)
    assert (found["low"].target, found["high"].target) == (TWO, None)
    assert found["high"].reason.startswith(
        "wait high: local devices: low needs a device for its minimum of 2 instances, and bids"
    )


def test_a_job_under_way_gives_way_to_a_limit_but_does_not_grow() -> None:
    booting = job("first", TWO, trained=ONE)
    moment = snapshot(booting, offers=(SMALL,), limits=[devices(1)])
    assert decisions(moment)["first"].target == ONE
    roomy = replace(moment, limits=(devices(8),))
    assert decisions(roomy)["first"].target == TWO


def test_a_boot_under_way_is_finished_unless_what_replaces_it_is_worth_two() -> None:
    booting = job("first", TWO, trained=ONE)
    for value_usd_per_hour, target in ((0.1, TWO), (0.2, TWO), (5.0, None)):
        other = job("second", objective=valued(value_usd_per_hour))
        moment = snapshot(booting, other, offers=(SMALL,), limits=[devices(2)])
        assert decisions(moment)["first"].target == target
    settled = snapshot(job("first", TWO), job("second"), offers=(SMALL,), limits=[devices(2)])
    assert decisions(settled)["first"].target == ONE


def test_a_limit_that_was_lowered_takes_from_those_that_hold() -> None:
    moment = snapshot(job("a", TWO), job("b", TWO), offers=(SMALL,), limits=[devices(3)])
    found = decisions(moment)
    assert sorted(d.target.instances for d in found.values() if d.target) == [1, 2]
    assert all(d.action in (Action.HOLD, Action.SHRINK) for d in found.values())
    nothing = decisions(replace(moment, limits=(devices(0),)))
    assert all(d.target is None and d.action is Action.WAIT for d in nothing.values())


def test_a_cheap_job_waits_for_room_and_starts_where_there_is_some() -> None:
    cheap = job("cheap", objective=valued(0.0), waited_seconds=60.0)
    dear = job("dear", TWO, objective=valued(2.0))
    moment = snapshot(cheap, dear, offers=(SMALL,), limits=[devices(2)])
    found = decisions(moment)["cheap"]
    assert (found.action, found.target) == (Action.WAIT, None)
    assert found.reason.startswith("wait cheap: no room: local devices 2 of 2 in use")
    roomy = decisions(replace(moment, limits=(devices(5),)))
    assert roomy["cheap"].target == ONE


def test_every_job_starts_in_time_even_if_its_waiting_is_worth_nothing() -> None:
    jobs = [job(f"job-{i}", objective=valued(0.0)) for i in range(4)]
    found = decisions(snapshot(*jobs, offers=(SMALL,), limits=[devices(3)]))
    assert sum(d.target is not None for d in found.values()) == 3


def test_a_gang_gets_all_or_nothing() -> None:
    gang = job("gang", instances=InstanceBounds(3, 4))
    small = job("small", objective=valued(5.0))
    moment = snapshot(gang, small, offers=(SMALL,), limits=[devices(3)])
    found = decisions(moment)
    assert found["gang"].target is None
    assert found["small"].target is not None
    roomy = decisions(replace(moment, limits=(devices(8),)))
    assert roomy["gang"].target is not None
    assert roomy["gang"].target.instances >= 3


def test_a_limit_on_the_fleet_s_price_limits_all_together() -> None:
    limit = Limit("fleet price", LimitUnit.USD_PER_HOUR, 0.35)
    moment = snapshot(job("a", ONE), job("b", ONE), limits=[limit])
    found = plan(moment)
    assert used(limit, moment, found) <= 0.35
    assert found.shadow_prices["fleet price"] > 0
    held = next(d for d in found.decisions if d.action is Action.HOLD or "no room" in d.reason)
    assert held is not None


def test_weights_favour() -> None:
    jobs = (job("heavy", ONE, weight=3.0), job("light", ONE))
    found = decisions(snapshot(*jobs, offers=(SMALL,), limits=[devices(3)]))
    assert (found["heavy"].target, found["light"].target) == (TWO, ONE)
    jobs = (job("heavy", ONE), job("light", ONE, weight=3.0))
    found = decisions(snapshot(*jobs, offers=(SMALL,), limits=[devices(3)]))
    assert (found["heavy"].target, found["light"].target) == (ONE, TWO)


def test_the_shorter_of_two_alike_gets_the_third_device() -> None:
    jobs = (
        job("long", ONE, remaining_examples=1e6),
        job("short", ONE, remaining_examples=3e5),
    )
    found = decisions(snapshot(*jobs, offers=(SMALL,), limits=[devices(3)]))
    assert (found["long"].target, found["short"].target) == (ONE, TWO)


def test_unknown_allocations_are_held_on_while_limits_bear_them() -> None:
    card = offer("card", kind="card", devices=2)
    lost = job("lost", Allocation("card", 1, 2))
    moment = snapshot(lost, job("a", ONE), offers=(SMALL, card), limits=[devices(3)])
    found = decisions(moment)
    assert (found["lost"].action, found["lost"].target) == (Action.HOLD, lost.held)
    assert found["a"].target == ONE
    tight = decisions(replace(moment, limits=(devices(1),)))
    assert tight["lost"].target is None
    assert tight["lost"].reason.startswith("wait lost: no room")


def test_a_solver_that_fails_is_told_of_and_costs_no_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise SolverError("out of memory")

    monkeypatch.setattr(decomposition, "_prices_of_least_bound", fail)
    moment = snapshot(job("first", TWO), job("second"), offers=(SMALL,), limits=[devices(2)])
    found = plan(moment)
    assert found.notes == ("planned greedily: out of memory",)
    assert used(moment.limits[0], moment, found) <= 2
    assert any(decision.target is not None for decision in found.decisions)


def test_figures_go_with_the_reason() -> None:
    (decision,) = plan(snapshot(job(held=ONE), offers=(SMALL,))).decisions
    assert decision.figures["goodput_before"] == pytest.approx(100.0)
    assert decision.figures["usd_per_hour_after"] == pytest.approx(0.2)
    assert decision.figures["bid_usd_per_hour"] == pytest.approx(0.1)


def test_moving_within_a_full_limit_releases_first() -> None:
    one = job(held=TWO, remaining_examples=1e6, instances=InstanceBounds(1, 2))
    moment = snapshot(one, offers=(SMALL, replace(LARGE, usd_per_hour=SMALL.usd_per_hour)))
    full = replace(moment, limits=(devices(2),))
    (decision,) = plan(full).decisions
    assert (decision.action, decision.release_first) == (Action.MOVE, True)
