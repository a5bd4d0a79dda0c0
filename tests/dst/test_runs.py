"""Runs of a few seeds, and what the tool promises about them: replays and shrinking.

`make dst` runs many seeds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.dst.mutations import MUTATIONS
from tests.dst.scenario import Fault, JobPlan, Scenario, scenario_of
from tests.dst.shrinking import invariant_of, kept_faults, numbers_of, shrunk
from tests.dst.world import run


@pytest.mark.parametrize("seed", [5, 13])
def test_a_seed_keeps_all_invariants_and_repeats_itself(seed: int) -> None:
    violation, digest = run(scenario_of(seed))
    assert violation is None
    assert run(scenario_of(seed)) == (None, digest)


def test_a_run_on_sqlite_keeps_all_invariants() -> None:
    job = JobPlan("job0", 0, 1, 1, work_seconds=60, save_seconds=1, budget_usd=None, spot=True)
    faults = (Fault(8, "kill", (9, 15)), Fault(20, "writes fail", (2,)))
    scenario = replace(scenario_of(0), store="sql", clouds=("aws",), jobs=(job,), faults=faults)
    assert run(scenario)[0] is None


def test_seeds_differ() -> None:
    assert len({scenario_of(seed).faults for seed in range(50)}) > 40
    kinds = {fault.kind for seed in range(100) for fault in scenario_of(seed).faults}
    assert {"kill", "usurp", "disk full", "clock jumps", "zone fails", "vice"} <= kinds


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
        ("limits are not checked in the pass", 5, "no cap is passed"),
    ],
)
def test_planted_defects_break_an_invariant(mutation: str, seed: int, invariant: str) -> None:
    with MUTATIONS[mutation]():
        violation, _ = run(scenario_of(seed))
    assert violation is not None
    assert invariant_of(violation) == invariant
