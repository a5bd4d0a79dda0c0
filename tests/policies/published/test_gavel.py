from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from autoscaler.domain.errors import SolverError
from autoscaler.domain.snapshot import GroundTruth, JobSnapshot, ServiceReceived
from autoscaler.policies.published import gavel as module
from autoscaler.policies.published.gavel import GavelCostPolicy, GavelParameters, GavelPolicy
from autoscaler.policies.published.gavel_shares import GavelObjective, SharedKinds, shares
from autoscaler.policies.registry import create_policy
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    machine,
    placement_of,
    placements,
    pool_job,
    pool_snapshot,
)
from tests.economics.cases import NOW, model

TWO_KINDS = (machine(0, 1), machine(1, 1, "fast"))


class TestGavel(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> GavelPolicy:
        return GavelPolicy()


class TestGavelByFinishTimes(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> GavelPolicy:
        return GavelPolicy(GavelParameters(GavelObjective.FINISH_TIME_FAIRNESS))


def kinds(throughput: ArrayLike, devices: ArrayLike = (1.0, 1.0), **changes: Any) -> SharedKinds:
    """Jobs of one device each, as old and as long as each other."""
    found = np.array(throughput, dtype=np.float64)
    ones = np.ones(len(found))
    plain = SharedKinds(
        throughput=found,
        gang=ones,
        devices=np.array(devices),
        usd_per_hour=np.ones(found.shape[1]),
        weight=ones,
        age_seconds=0.0 * ones,
        steps_left=100.0 * ones,
        steps=100.0 * ones,
    )
    return replace(plain, **{name: np.array(value) for name, value in changes.items()})


def throughputs(objective: GavelObjective, problem: SharedKinds) -> list[float]:
    found = shares(objective, problem)
    assert (found.sum(axis=1) <= 1 + 1e-4).all()
    assert (problem.gang @ found <= problem.devices + 1e-3).all()
    rates: list[float] = (problem.throughput * found).sum(axis=1).tolist()
    return rates


def test_the_most_throughput_is_where_each_is_faster() -> None:
    found = shares(GavelObjective.MAX_SUM_THROUGHPUT, kinds([[1.0, 4.0], [1.0, 1.5]]))
    assert found.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_jobs_that_are_alike_take_turns() -> None:
    found = shares(GavelObjective.MAX_SUM_THROUGHPUT, kinds([[1.0, 4.0], [1.0, 4.0]]))
    assert found == pytest.approx(np.full((2, 2), 0.5))


def test_max_min_gives_each_as_many_times_its_equal_share() -> None:
    """Let jobs with throughputs of 1.0, 4.0 and 1.0, 1.0 trade their equal halves."""
    first, second = throughputs(GavelObjective.MAX_MIN, kinds([[1.0, 4.0], [1.0, 1.0]]))
    assert first / 2.5 == pytest.approx(second / 1.0, rel=1e-3)
    assert second > 0.999
    heavy = throughputs(
        GavelObjective.MAX_MIN, kinds([[1.0], [1.0]], devices=[1.0], weight=[3.0, 1.0])
    )
    assert heavy == pytest.approx([0.75, 0.25], abs=1e-4)


def test_a_makespan_is_least_when_all_end_at_once() -> None:
    problem = kinds([[1.0], [1.0]], devices=[1.0], steps_left=[300.0, 100.0])
    assert throughputs(GavelObjective.MAKESPAN, problem) == pytest.approx([0.75, 0.25], abs=1e-4)


def test_a_dear_kind_is_for_those_who_make_most_of_the_money() -> None:
    problem = kinds([[1.0, 4.0], [3.0, 8.0]])
    assert shares(GavelObjective.COST, problem).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    dear = replace(problem, usd_per_hour=np.array([1.0, 6.0]))
    assert shares(GavelObjective.COST, dear).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_who_has_waited_is_given_more_for_a_fair_finish() -> None:
    old = kinds([[1.0], [1.0]], devices=[1.0], age_seconds=[100.0, 0.0])
    waited, new = throughputs(GavelObjective.FINISH_TIME_FAIRNESS, old)
    # Alone on half of it each takes 200 s: (100 + 100/x) / 200 = (100 / (1 - x)) / 200.
    assert waited == pytest.approx(1 / ((1 + 5**0.5) / 2), abs=0.01)
    assert new == pytest.approx(1 - waited, abs=0.01)


def true(name: str, slow: float, fast: float, **changes: object) -> JobSnapshot:
    """A job of one device that makes so many steps a second on each kind."""
    truth = GroundTruth(
        {}, 100.0, kind_step_seconds={"card": {1: 1 / slow}, "fast": {1: 1 / fast}}
    )
    models = {kind: model(kind=kind) for kind in ("card", "fast")}
    return pool_job(name, models=models, truth=truth, **changes)


def test_who_is_behind_its_share_goes_first() -> None:
    """All are to have a third of each kind; of the slow one nobody has had anything yet."""
    had = {"a": 7200.0, "b": 360.0, "c": 3600.0}
    jobs = [
        true(
            name, 1.0, 4.0, service=ServiceReceived(seconds, kind_device_seconds={"fast": seconds})
        )
        for name, seconds in had.items()
    ]
    found = placements(GavelPolicy().plan(pool_snapshot(*jobs, offers=TWO_KINDS)))
    assert found == {"a": placement_of(node_000=1), "b": placement_of(node_001=1), "c": None}


def test_a_gang_that_fits_on_no_machine_of_a_kind_goes_to_the_other() -> None:
    wide = pool_job("wide", 6, models={kind: model(kind=kind) for kind in ("card", "fast")})
    offers = (machine(0, 4), machine(1, 8, "fast"))
    assert placements(GavelPolicy().plan(pool_snapshot(wide, offers=offers))) == {
        "wide": placement_of(node_001=6)
    }


def test_prices_come_from_the_offers_or_the_parameters() -> None:
    jobs = (true("a", 1.0, 4.0), true("b", 1.0, 4.0))
    moment = pool_snapshot(jobs[0], offers=TWO_KINDS)
    assert placements(GavelCostPolicy().plan(moment)) == {"a": placement_of(node_001=1)}
    dear = GavelParameters(GavelObjective.COST, usd_per_hour={"fast": 9.0})
    assert placements(GavelCostPolicy(dear).plan(moment)) == {"a": placement_of(node_000=1)}


def test_where_the_program_is_not_solved_the_shares_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(objective: GavelObjective, problem: SharedKinds) -> object:
        raise SolverError("no shares were found")

    monkeypatch.setattr(module, "shares", fails)
    plan = GavelPolicy().plan(pool_snapshot(true("a", 1.0, 4.0), offers=TWO_KINDS))
    assert plan.notes == ("no shares were found",)
    assert placements(plan)["a"] is not None


@pytest.mark.parametrize("objective", list(GavelObjective))
def test_every_objective_has_a_name_in_the_registry(objective: GavelObjective) -> None:
    name = "gavel" if objective is GavelObjective.MAX_SUM_THROUGHPUT else f"gavel-{objective}"
    policy = create_policy(name)
    assert isinstance(policy, GavelPolicy)
    assert policy.objective is objective
    jobs = [true(name, 1.0, 4.0, submitted_seconds=NOW - 60.0) for name in "abc"]
    plan = policy.plan(pool_snapshot(*jobs, offers=TWO_KINDS))
    assert sum(one is not None for one in placements(plan).values()) == 2
    assert plan.notes == ()


def test_parameters_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="round_seconds"):
        GavelParameters(round_seconds=0.0)
    with pytest.raises(ValueError, match="fast"):
        GavelParameters(usd_per_hour={"fast": 0.0})
