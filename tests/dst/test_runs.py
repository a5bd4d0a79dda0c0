"""Runs of a few seeds, and what the tool promises about them: replays and shrinking.

`make dst` runs many seeds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from optuna.trial import TrialState

from tests.dst.mutations import MUTATIONS
from tests.dst.scenario import (
    FIRST_WITH_STUDIES,
    PRUNERS,
    Fault,
    JobPlan,
    Scenario,
    scenario_of,
)
from tests.dst.shrinking import invariant_of, kept_faults, numbers_of, shrunk
from tests.dst.studies import replaced_randomness
from tests.dst.world import World, run

# Seeds that broke an invariant in a campaign; docs/reliability.md has their causes.
_CORRECTED = (
    *(52, 141, 1236, 1459, 2071, 2079, 2348, 2380, 2397, 3213, 3674, 4819, 6512, 8948),
    *(9639, 10234, 10378, 10957, 11240, 14770, 14818, 17825, 18210, 18568),
)


@pytest.mark.parametrize("seed", [5, 13, FIRST_WITH_STUDIES + 2])
def test_a_seed_keeps_all_invariants_and_repeats_itself(seed: int) -> None:
    violation, digest = run(scenario_of(seed))
    assert violation is None
    assert run(scenario_of(seed)) == (None, digest)


@pytest.mark.parametrize("seed", _CORRECTED)
def test_a_seed_that_broke_an_invariant_keeps_all(seed: int) -> None:
    assert run(scenario_of(seed))[0] is None


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (14818, "1,4,5,6,7,12"),
        (17825, "0,1"),
        (18210, "0,1,5"),
        (200156, "4,5,11"),
        (200174, "0,2,3,4,7,8"),
    ],
)
def test_a_seed_that_broke_an_invariant_with_some_of_its_faults_keeps_all(
    seed: int, faults: str
) -> None:
    assert run(kept_faults(scenario_of(seed), faults))[0] is None


def test_a_run_on_sqlite_keeps_all_invariants() -> None:
    job = JobPlan("job0", 0, 1, 1, work_seconds=60, save_seconds=1, budget_usd=None, spot=True)
    faults = (Fault(8, "kill", (9, 15)), Fault(20, "writes fail", (2,)))
    scenario = replace(scenario_of(0), store="sql", clouds=("aws",), jobs=(job,), faults=faults)
    assert run(scenario)[0] is None


def test_a_study_without_faults_ends_with_the_values_of_its_scripts() -> None:
    scenario = scenario_of(FIRST_WITH_STUDIES)
    assert scenario.study is not None
    study = replace(scenario.study, trials=2, budget_usd=None, pruner="median", epochs=3)
    world = World(replace(scenario, faults=(), jobs=(), fleet_usd=None, study=study))
    with replaced_randomness():
        world.run()
    assert world.study is not None
    assert [run.end for run in world.study.runs] == ["done"]
    assert len(world.study.trials) == 2
    for trial in world.study.trials:
        assert trial.state.is_finished()
        returned = world.study.course.returned[trial.number]
        assert ({trial.value} if trial.state is TrialState.COMPLETE else set()) == returned


def test_seeds_differ() -> None:
    assert len({scenario_of(seed).faults for seed in range(50)}) > 40
    kinds = {fault.kind for seed in range(100) for fault in scenario_of(seed).faults}
    assert {"kill", "usurp", "disk full", "clock jumps", "zone fails", "vice"} <= kinds
    studies = [scenario_of(FIRST_WITH_STUDIES + seed) for seed in range(50)]
    kinds = {fault.kind for scenario in studies for fault in scenario.faults}
    assert {"driver dies", "driver sleeps", "study stops", "requests doubled"} <= kinds
    assert {scenario.study.pruner for scenario in studies if scenario.study} == set(PRUNERS)


def _with_faults(count: int) -> Scenario:
    faults = tuple(Fault(step, "kill", (step, 1)) for step in range(count))
    return replace(scenario_of(0), faults=faults)


@pytest.mark.parametrize("needed", [{0}, {9}, {2, 7}, {0, 4, 5, 9}, set()])
def test_shrinking_keeps_only_the_faults_that_break_the_invariant(needed: set[int]) -> None:
    scenario = _with_faults(10)

    def tried(other: Scenario) -> str | None:
        steps = {fault.step for fault in other.faults}
        return "no cap is passed: much" if needed <= steps else None

    smaller, violation = shrunk(scenario, "no cap is passed: $1", tried)
    assert {fault.step for fault in smaller.faults} == needed
    assert invariant_of(violation) == "no cap is passed"
    assert kept_faults(scenario, numbers_of(scenario, smaller)) == smaller


def test_shrinking_does_not_move_to_another_invariant() -> None:
    scenario = _with_faults(4)

    def tried(other: Scenario) -> str | None:
        return "zero when all is done: x" if len(other.faults) < 4 else "no cap is passed: x"

    assert shrunk(scenario, "no cap is passed: x", tried)[0] == scenario


@pytest.mark.parametrize(
    ("mutation", "seed", "invariant"),
    [
        ("launches are not recorded before their call", 0, "an order is recorded before its call"),
        ("plans forget the jobs that wait", 5, "a job makes progress or says why not"),
        ("limits are not checked in the pass", 5, "no cap is passed"),
        ("budgets of studies are not enforced", FIRST_WITH_STUDIES + 280, "no budget is passed"),
    ],
)
def test_planted_defects_break_an_invariant(mutation: str, seed: int, invariant: str) -> None:
    with MUTATIONS[mutation]():
        violation, _ = run(scenario_of(seed))
    assert violation is not None
    assert invariant_of(violation) == invariant
