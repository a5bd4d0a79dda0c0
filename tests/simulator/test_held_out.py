"""Perturbed runs of `benchmarks/held_out.py`, and the plan for comparison."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.slowdowns import Slowdown
from benchmarks.perturbations import CLIFF, DRIFT, KIND, NOISE, counts, draw_cases
from tests.simulator import toy

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MOST_NODES = {"small": {"slow": 1}, "large": {"slow": 16, "fast": 4}, "other": {"fast": 3}}


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    return toy.profiles(tmp_path_factory.mktemp("profiles"))[toy.APPLICATION]


@pytest.fixture
def drift(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("clairvoyant_drift")


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("held_out")


def test_the_same_seed_draws_the_same_cases() -> None:
    assert draw_cases(MOST_NODES, 60, 1) == draw_cases(MOST_NODES, 60, 1)
    assert draw_cases(MOST_NODES, 60, 1) != draw_cases(MOST_NODES, 60, 2)


@pytest.mark.parametrize("count", [20, 200])
def test_of_twenty_cases_twelve_have_a_cliff(count: int) -> None:
    drawn = counts(draw_cases(MOST_NODES, count, 5))
    rounds = count // 20
    assert drawn == {CLIFF: 12 * rounds, DRIFT: 3 * rounds, KIND: 2 * rounds, NOISE: 3 * rounds}


def test_perturbed_sizes_are_on_offer_where_any_is() -> None:
    for case in draw_cases(MOST_NODES, 400, 3):
        for slowdown in case.perturbation.slowdowns:
            most = MOST_NODES[case.subject][slowdown.kind]
            assert slowdown.least_nodes <= max(most, 2)


def cloud() -> object:
    clairvoyant = importlib.import_module("clairvoyant")
    machines = (
        clairvoyant.Machine(toy.offer("slow"), "slow", 4),
        clairvoyant.Machine(toy.offer("fast"), "fast", 2),
    )
    return clairvoyant.Ground(machines)


def test_a_drift_after_the_end_changes_nothing(drift: ModuleType, profile: Profile) -> None:
    late = (Slowdown("slow", 3.0, from_seconds=1e7),)
    for value in (1.0, 100.0):
        plain = drift.limit_usd(profile, cloud(), value, ())
        assert drift.limit_usd(profile, cloud(), value, late) == pytest.approx(plain, rel=1e-3)


def test_a_drift_at_the_start_is_a_slow_kind(drift: ModuleType, profile: Profile) -> None:
    for value in (1.0, 100.0):
        slow = drift.limit_usd(profile, cloud(), value, (Slowdown("slow", 3.0),))
        early = (Slowdown("slow", 3.0, from_seconds=0.001),)
        assert drift.limit_usd(profile, cloud(), value, early) == pytest.approx(slow, rel=1e-3)


def test_a_later_drift_costs_less(drift: ModuleType, profile: Profile) -> None:
    moments = (60.0, 300.0, 900.0, 1e7)
    costs = [
        drift.limit_usd(profile, cloud(), 1.0, (Slowdown("slow", 3.0, from_seconds=moment),))
        for moment in moments
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


def test_a_perturbed_run_costs_no_less_than_the_clairvoyant_plan(
    held_out: ModuleType, profile: Profile
) -> None:
    elastic = importlib.import_module("elastic_cloud")
    subjects = {profile.name: elastic.Subject(profile, cloud())}
    nodes = {name: held_out.most_nodes(subject) for name, subject in subjects.items()}
    assert nodes == {profile.name: {"slow": 4, "fast": 2}}
    results = [held_out.run_case(subjects, "marginal", case) for case in draw_cases(nodes, 9, 1)]
    assert all(result.ratio > 0.999 for result in results)
    summary = held_out.summary(1, results)
    assert summary["all"]["runs"] == 9
    assert summary["worst"][0]["ratio"] == summary["all"]["max"]
    assert sum(group["runs"] for group in summary["by_kind"].values()) == 9
