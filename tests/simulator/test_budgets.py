"""The end of a month under budgets below the demand: never above, nearly all used, all at work."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.budget import Budget, month_of
from autoscaler.domain.objective import AfterDeadline
from autoscaler.simulator.profiles.profiles import Profile
from benchmarks.budgets import (
    DAY_SECONDS,
    EVE,
    FLEET,
    NLP,
    OWNERS,
    ZONE,
    Month,
    november,
    run_month,
    write_profiles,
)

HOURS = 12.0


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    return write_profiles(tmp_path_factory.mktemp("budgets"))


def last_hours(seed: int, share: float = 1.0, reclaims_per_hour: float = 0.0) -> Month:
    """Return the last hours of a month, with budgets that pay 14 to 16 instances on average."""
    limits = {NLP: 42 * share, EVE: 32 * share, FLEET: 68 * share}
    days = HOURS / 24
    return Month(
        tuple(Budget(scope, Decimal(f"{usd:.2f}"), zone=ZONE) for scope, usd in limits.items()),
        month_of(november(), ZONE).end_seconds - days * DAY_SECONDS,
        days,
        seed=seed,
        reclaims_per_hour=reclaims_per_hour,
        gap_seconds=600.0,
    )


@pytest.mark.parametrize("seed", [1])
def test_jobs_slow_within_their_budgets_and_none_is_starved(
    profiles: dict[str, Profile], seed: int
) -> None:
    steered = run_month(last_hours(seed), profiles, is_steered=True)
    assert max(steered.highest_share.values()) <= 1
    assert steered.usd[FLEET] >= Decimal("0.95") * 68
    for job in OWNERS:
        assert steered.training_seconds[job] > 0.85 * HOURS * 3600, f"{job} had to wait"
    examples = steered.examples.values()
    assert min(examples) > 0.5 * max(examples)
    stopped = run_month(last_hours(seed), profiles, is_steered=False)
    assert max(stopped.highest_share.values()) <= 1
    assert sum(examples) > 1.2 * sum(stopped.examples.values()), "the same money trains more"


def test_deadlines_are_kept_while_the_other_jobs_slow(profiles: dict[str, Profile]) -> None:
    deadlines = {"parser": 10.0, "depth": 10.0}
    month = replace(last_hours(1), deadline_hours=deadlines, short=frozenset(deadlines))
    outcome = run_month(month, profiles, is_steered=True)
    for job in ("parser", "depth"):
        assert outcome.ended_seconds[job] <= month.begin_seconds + 10 * 3600
    assert max(outcome.highest_share.values()) <= 1
    assert outcome.usd[FLEET] >= Decimal("0.95") * 68
    for job in OWNERS.keys() - month.deadline_hours:
        assert outcome.training_seconds[job] > 0.85 * HOURS * 3600, f"{job} had to wait"


def test_jobs_that_are_late_slow_as_the_others_do(profiles: dict[str, Profile]) -> None:
    """Their value of time is the highest there is, and would use up the budgets in hours."""
    month = replace(
        last_hours(2),
        deadline_hours={"parser": 4.0, "depth": 4.0},
        after_deadline=AfterDeadline.FASTEST,
    )
    outcome = run_month(month, profiles, is_steered=True)
    assert max(outcome.highest_share.values()) <= 1
    assert outcome.usd[FLEET] >= Decimal("0.95") * 68
    assert not outcome.ended_seconds
    for job in OWNERS:
        assert outcome.training_seconds[job] > 0.85 * HOURS * 3600, f"{job} had to wait"


@pytest.mark.parametrize(("seed", "share"), [(3, 0.2), (4, 0.6)])
def test_no_budget_is_exceeded_whatever_its_size_amid_reclaims(
    profiles: dict[str, Profile], seed: int, share: float
) -> None:
    month = last_hours(seed, share, reclaims_per_hour=0.1)
    outcome = run_month(month, profiles, is_steered=True)
    assert max(outcome.highest_share.values()) <= 1
