"""Fleets: the plan of many jobs at once, beside that of each by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import SolverError
from autoscaler.domain.goodput import BatchBounds, NoiseCurve, NoiseScale
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts, ThroughputModel
from autoscaler.economics.allocation import speeds
from autoscaler.economics.choice.demands import Demand, demand
from autoscaler.economics.supply.supply import supply_of
from autoscaler.goodput import many
from autoscaler.goodput.fit import fit
from autoscaler.goodput.prior import prior_for, prior_from_kind
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal import limit_sharing as decomposition
from autoscaler.policies.marginal.exact import SolverLimits
from autoscaler.policies.marginal.fleet import MarginalParameters
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.economics.cases import NOW, devices, offer
from tests.economics.strategies import snapshots
from tests.policies.marginal.worths import every_size, plan_of_each, worth_of

HELD = Allocation("t4-1-on-demand", 1, 1)


def fleet_policy() -> MarginalPolicy:
    """Return a new policy to which any number of jobs is a fleet."""
    return MarginalPolicy(MarginalParameters(fleet_jobs=0))


def plan_as_fleet(moment: Snapshot) -> Plan:
    return fleet_policy().plan(moment)


def targets(plan: Plan) -> dict[str, Allocation | None]:
    return {each.job: each.target for each in plan.decisions}


def offers() -> tuple[Offer, ...]:
    """Two kinds of device, alone and four in an instance, on-demand and spot."""
    found = []
    for kind, speed in (("t4", 1.0), ("a100", 9.0)):
        for count in (1, 4):
            for purchase, factor in ((Purchase.ON_DEMAND, 1.0), (Purchase.SPOT, 0.35)):
                one = offer(
                    f"{kind}-{count}-{purchase.value}",
                    f"{0.5 * count * speed**0.9 * factor:.4f}",
                    devices=count,
                    kind=kind,
                    boot_seconds=180.0,
                    reclaims_per_hour=0.05 if purchase is Purchase.SPOT else 0.0,
                )
                found.append(replace(one, purchase=purchase))
    return tuple(found)


def models(generator: np.random.Generator) -> dict[str, ThroughputModel]:
    """T4 measured at one and two devices, A100 not."""
    seconds = float(generator.lognormal(-5.0, 0.7))
    seen = [
        StepObservation("t4", 1, 1, 64, 0, 64 * seconds, 0.0, 200),
        StepObservation("t4", 2, 2, 64, 0, 64 * seconds * 1.2, 64 * seconds * 0.2, 200),
    ]
    measured = fit(seen, prior_for("t4", 100_000_000, 3e9))
    return {"t4": measured, "a100": fit([], prior_from_kind(measured, "a100", 9.0))}


@lru_cache
def jobs(count: int = 60) -> tuple[JobSnapshot, ...]:
    generator = np.random.default_rng(7)
    wants = (Preference.BALANCED, Preference.CHEAPEST, Preference.FASTEST)
    return tuple(
        JobSnapshot(
            id=f"job-{index:03d}",
            objective=Objective(wants[index % 3]),
            instances=InstanceBounds(1, 12 + 4 * (index % 2)),
            batch=BatchBounds(64, 4096, 128, adaptive=True),
            submitted_seconds=NOW - 600.0,
            remaining_examples=float(generator.lognormal(15.0, 1.0)),
            spent_usd=0.1,
            held=HELD if index % 5 else None,
            trained=HELD if index % 5 else None,
            models=models(generator),
            noise=NoiseScale(64, 1.0, float(generator.lognormal(1.0, 1.0)), 0.2),
            switching=SwitchingCosts(2.0, 60.0),
            weight=1.0 + index % 2,
        )
        for index in range(count)
    )


def moment_of(some: Sequence[JobSnapshot], *limits: Limit) -> Snapshot:
    return Snapshot(NOW, offers(), limits, tuple(some))


def demands_in(moment: Snapshot) -> list[Demand]:
    supply = every_size(moment)
    room = supply.maximum - supply.uses(job.held for job in moment.jobs)
    return [demand(job, supply, room) for job in moment.jobs]


@given(snapshots(jobs=3, is_limited=True, least_examples=1e5))
@settings(max_examples=30)
def test_few_jobs_as_a_fleet_stay_within_limits_and_do_as_well_up_to_the_gap(
    moment: Snapshot,
) -> None:
    plan = plan_as_fleet(moment)
    found, supply = targets(plan), supply_of(moment)
    assert supply.bears(supply.uses(found.values()))
    demands = demands_in(moment)
    assume(all(own.eligible.any() and own.target is not None for own in demands))
    wished = [own.at.candidates.allocation(own.target or 0) for own in demands]
    if supply.bears(supply.uses(wished)):
        for own in demands:
            usd = own.expected_usd[own.at.candidates.index(found[own.job.id])]
            assert usd <= 1.02 * own.expected_usd[own.target] + 1e-9
        return
    best = plan_of_each(moment)
    most = worth_of(best.targets, best)
    assert worth_of(found, best) >= 0.98 * most - plan.gap_usd_per_second - 1e-9


def test_what_jobs_wish_costs_little_more_than_when_each_is_looked_at_alone() -> None:
    moment = moment_of(jobs())
    found = targets(plan_as_fleet(moment))
    demands = demands_in(moment)
    more = []
    for own in demands:
        usd = own.expected_usd[own.at.candidates.index(found[own.job.id])]
        more.append(usd / own.expected_usd[own.target] - 1.0)
    assert np.mean(more) < 0.01
    assert max(more) < 0.1


def test_a_job_that_can_hardly_move_may_shrink_where_it_is() -> None:
    usd = {"upload_usd_per_gb": Decimal("0.5"), "download_usd_per_gb": Decimal("0.5")}
    far = replace(offer("far", "0.9", devices=4, kind="t4", **usd), network="far")
    near = [offer(f"near-{count}", f"{0.3 * count}", devices=count, kind="t4") for count in (1, 4)]
    held = Allocation("far", 8, 4)
    job = replace(
        jobs()[0],
        held=held,
        trained=held,
        remaining_examples=1e5,
        switching=SwitchingCosts(2.0, 60.0, checkpoint_bytes=100e9),
    )
    measured = replace(job.models["t4"], measured=job.models["t4"].measured | {(8, 32)})
    job = replace(job, models={**job.models, "t4": measured})
    moment = Snapshot(NOW, (far, *near), (), (job,))
    expected = targets(MarginalPolicy().plan(moment))
    assert expected[job.id] not in (held, None)
    assert targets(plan_as_fleet(moment)) == expected


@pytest.mark.parametrize(
    "limits",
    [
        (devices(120),),
        (devices(160), Limit("money", LimitUnit.USD_PER_HOUR, 60.0)),
        (
            Limit(
                "a100", LimitUnit.INSTANCES, 20, frozenset(o.id for o in offers() if "a1" in o.id)
            ),
        ),
    ],
)
def test_limits_are_shared_nearly_as_well_as_by_the_program(limits: tuple[Limit, ...]) -> None:
    moment = moment_of(jobs(), *limits)
    plan = plan_as_fleet(moment)
    supply = supply_of(moment)
    assert supply.bears(supply.uses(targets(plan).values()))
    best = plan_of_each(moment, SolverLimits(exact_jobs=0))
    most = worth_of(best.targets, best)
    assert worth_of(targets(plan), best) >= 0.98 * most
    assert plan.gap_usd_per_second <= 0.02 * most
    assert max(plan.shadow_prices.values()) > 0


def test_the_order_of_the_jobs_is_nothing() -> None:
    moment = moment_of(jobs(), devices(120))
    order = np.random.default_rng(1).permutation(len(moment.jobs))
    first = plan_as_fleet(moment)
    second = plan_as_fleet(moment_of([jobs()[i] for i in order], devices(120)))
    assert targets(first) == targets(second)


def test_what_is_remembered_changes_no_decision() -> None:
    before, policy = list(jobs()), fleet_policy()
    policy.plan(moment_of(before, devices(120)))
    two = Allocation("t4-1-on-demand", 2, 1)
    after = [replace(job, remaining_examples=1e6) for job in before[5:]]
    after[0] = replace(after[0], models=before[0].models)
    after[1] = replace(after[1], held=two, trained=HELD)
    after[2] = replace(after[2], held=two, trained=two)
    after[3] = replace(after[3], held=Allocation("a100-4-spot", 1, 3), trained=None)
    after[4] = replace(after[4], objective=Objective(Preference.FASTEST))
    after.append(replace(before[0], id="new", switching=SwitchingCosts(9.0, 600.0)))
    moment = moment_of(after, devices(120))
    assert policy.plan(moment) == plan_as_fleet(moment)


def test_prices_and_limits_move_nothing_that_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = fleet_policy()
    policy.plan(moment_of(jobs(), devices(120)))
    dearer = tuple(
        replace(each, usd_per_hour=each.usd_per_hour * Decimal("1.3"))
        if each.id == "a100-1-spot"
        else each
        for each in offers()
    )
    moment = replace(moment_of(jobs(), devices(100)), offers=dearer)
    looked: list[int] = []

    def counted(drawn: many.DrawnModels, *places: Any) -> FloatArray:
        looked.append(len(drawn.models))
        return many.seconds_per_example(drawn, *places)

    with monkeypatch.context() as patched:
        patched.setattr(speeds, "seconds_per_example", counted)
        found = policy.plan(moment)
    assert sum(looked) < len(jobs())
    assert found == plan_as_fleet(moment)


def test_jobs_with_batches_of_their_own_are_looked_at_together() -> None:
    largest = (4096, 1024, 64)
    some = [
        replace(job, batch=BatchBounds(64, largest[index % 3], 128, adaptive=True))
        for index, job in enumerate(jobs())
    ]
    together = targets(plan_as_fleet(moment_of(some)))
    for index in range(3):
        apart = targets(plan_as_fleet(moment_of(some[index::3])))
        assert apart == {name: together[name] for name in apart}


def test_what_is_not_listed_is_planned_as_by_itself() -> None:
    plain, *some = (replace(job, instances=InstanceBounds(1, 8)) for job in jobs(8))
    unmeasured = {
        kind: replace(model, measured=frozenset()) for kind, model in plain.models.items()
    }
    curve = NoiseCurve((1.0, 1e6, 1e8), (64.0, 128.0, 512.0))
    lost = Allocation("nobody-offers-it", 2, 1)
    rare = [
        replace(some[0], objective=Objective(deadline_seconds=NOW + 36_000.0)),
        replace(some[1], objective=Objective(budget_usd=Decimal("0.1"))),
        replace(some[2], objective=Objective(budget_usd=Decimal(50))),
        replace(some[3], models=unmeasured, held=None, trained=None),
        replace(some[4], noise_curve=curve),
        replace(some[5], held=lost, trained=lost),
        replace(some[6], models={}),
    ]
    moment = moment_of([plain, *rare])
    found = {each.job: each for each in plan_as_fleet(moment).decisions}
    alone = {each.job: each for each in MarginalPolicy().plan(moment).decisions}
    assert found.keys() == alone.keys()
    for job in rare:
        assert (found[job.id].action, found[job.id].target) == (
            alone[job.id].action,
            alone[job.id].target,
        )
    tight = plan_as_fleet(replace(moment, limits=(devices(12),)))
    supply = supply_of(replace(moment, limits=(devices(12),)))
    assert supply.bears(supply.uses(targets(tight).values()))
    assert targets(tight)[some[5].id] == lost


def test_what_was_ordered_is_waited_for_and_what_is_gone_is_not_bought() -> None:
    one, two, three, *others = jobs(8)
    ordered = Allocation("t4-1-on-demand", 3, 1)
    moment = replace(
        moment_of(
            [
                replace(one, held=ordered, trained=HELD),
                replace(two, held=ordered, trained=ordered),
                replace(three, held=Allocation("t4-4-spot", 1, 4), trained=None),
                *others,
            ]
        ),
        unavailable=frozenset({"t4-4-spot", "a100-4-spot", "a100-1-spot"}),
    )
    found: dict[str, Decision] = {e.job: e for e in plan_as_fleet(moment).decisions}
    assert found[one.id].target == found[two.id].target == ordered
    assert found[one.id].reason.endswith("1 of 3 train so far")
    assert found[two.id].reason.endswith("not measured there yet")
    assert found[three.id].target == Allocation("t4-4-spot", 1, 4)
    bought = {each.target.offer for each in found.values() if each.target} - {"t4-4-spot"}
    assert not bought & moment.unavailable


def test_reasons_tell_of_gains_and_of_rivals() -> None:
    free = plan_as_fleet(moment_of(jobs()))
    assert all("nan" not in each.reason and "\n" not in each.reason for each in free.decisions)
    assert any("average now" in each.reason for each in free.decisions)
    assert all(each.figures["goodput_after"] > 0 for each in free.decisions)
    tight = plan_as_fleet(moment_of(jobs(), devices(120)))
    outbid = [each for each in tight.decisions if each.ground == "outbid"]
    assert any(" is worth $" in each.reason for each in outbid)


def test_without_a_solver_the_limits_are_filled_by_worth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise SolverError("out of memory")

    monkeypatch.setattr(decomposition, "_lowest", fail)
    moment = moment_of(jobs(), devices(120))
    found = plan_as_fleet(moment)
    assert found.notes == ("planned greedily: out of memory",)
    supply = supply_of(moment)
    used = supply.uses(targets(found).values())
    assert supply.bears(used)
    assert used[0] > 100


def other_halves() -> tuple[Snapshot, Snapshot, Snapshot]:
    """Return snapshots of half of the jobs, of these with other noise, and of the other half."""
    half = jobs()[:30]
    noisier = [replace(job, noise=NoiseScale(64, 1.0, 9.0, 0.2)) for job in half]
    return (
        moment_of(half, devices(60)),
        moment_of(noisier, devices(60)),
        moment_of(jobs()[30:], devices(60)),
    )


def interrupt_once(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]) -> None:
    """Call `interrupt` in the middle of the next plan that evaluates the speeds of jobs."""
    interrupts = [interrupt]

    def interrupted(*args: Any) -> FloatArray:
        if interrupts:
            interrupts.pop()()
        return many.seconds_per_example(*args)

    monkeypatch.setattr(speeds, "seconds_per_example", interrupted)


def test_two_policies_that_plan_side_by_side_plan_as_each_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, now, other = other_halves()
    alone = plan_as_fleet(now), plan_as_fleet(other)
    policy, other_policy = fleet_policy(), fleet_policy()
    policy.plan(before)
    with ThreadPoolExecutor(1) as threads:
        plans: list[Plan] = []
        interrupt_once(
            monkeypatch,
            lambda: plans.append(threads.submit(other_policy.plan, other).result(timeout=60)),
        )
        plans.append(policy.plan(now))
    assert plans == [alone[1], alone[0]]


def test_two_threads_that_plan_with_one_policy_plan_as_each_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, now, other = other_halves()
    alone = plan_as_fleet(now), plan_as_fleet(other)
    policy = fleet_policy()
    policy.plan(before)
    with ThreadPoolExecutor(1) as threads:
        others: list[Future[Plan]] = []

        def interrupt() -> None:
            others.append(threads.submit(policy.plan, other))
            wait(others, timeout=60)

        interrupt_once(monkeypatch, interrupt)
        found = policy.plan(now)
    assert (found, others[0].result()) == alone
