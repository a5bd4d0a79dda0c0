from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.errors import SolverError
from autoscaler.domain.snapshot import GroundTruth, JobSnapshot, Regime, Regimes, ServiceReceived
from autoscaler.policies.pools.pool import pool_of
from autoscaler.policies.published import shockwave
from autoscaler.policies.published.shockwave import ShockwaveParameters, ShockwavePolicy
from autoscaler.policies.published.shockwave_forecast import (
    RunPhase,
    RuntimeForecast,
    epochs_left,
    forecast,
)
from autoscaler.policies.published.shockwave_window import (
    Bidder,
    Window,
    concave,
    log_utility,
    rounds_of,
)
from tests.conformance.pool_policy import (
    PoolPolicyConformance,
    machines,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import NOW


class TestShockwave(PoolPolicyConformance):
    @pytest.fixture
    def policy(self) -> ShockwavePolicy:
        return ShockwavePolicy()


class TestWithoutASolver(PoolPolicyConformance):
    """Whatever the solver fails at, there is a plan."""

    @pytest.fixture
    def policy(self, monkeypatch: pytest.MonkeyPatch) -> ShockwavePolicy:
        def fails(*_: object) -> list[int]:
            raise SolverError("out of luck")

        monkeypatch.setattr(shockwave, "rounds_of", fails)
        return ShockwavePolicy()

    def test_the_plan_says_so(self, policy: ShockwavePolicy) -> None:
        plan = policy.plan(pool_snapshot(pool_job("a")))
        assert plan.notes == ("each job gets one round in turn: out of luck",)


def changing(
    name: str, *regimes: tuple[float, float], epochs: int, requested: int = 4, **changes: object
) -> JobSnapshot:
    """Return a job with regimes of these seconds an epoch and these completed epochs."""
    told = tuple(
        Regime(32 << place, seconds, done) for place, (seconds, done) in enumerate(regimes)
    )
    ran = sum(seconds * done for seconds, done in regimes)
    truth = GroundTruth({requested: told[0].epoch_seconds}, 1.0, Regimes(epochs, told))
    service = ServiceReceived(ran * requested, started_seconds=NOW - ran)
    plain = pool_job(name, requested, truth=truth, service=service)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_utility_that_doubles_half_way_is_worth_half_as_much_again() -> None:
    """Twice as fast after 10 of 20 rounds: 30 times the progress of a first round, not 20."""
    pool = pool_of(pool_snapshot())
    known = forecast(changing("a", (120.0, 0.0), (60.0, 0.0), epochs=20), pool)
    assert known.phases == (RunPhase(0.5, 10 * 120.0), RunPhase(0.5, 10 * 60.0))
    long = RuntimeForecast(0.0, (RunPhase(10 / 30, 10 * 120.0), RunPhase(20 / 30, 20 * 60.0)))
    static = RuntimeForecast(0.0, (RunPhase(1.0, 30 * 120.0),))
    first_round = long.progress_after(120.0)
    assert first_round == static.progress_after(120.0)
    assert long.progress_after(20 * 120.0) == pytest.approx(30 * first_round)
    assert static.progress_after(20 * 120.0) == pytest.approx(20 * first_round)


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ((0, 0, 0), (30, 30, 30)),
        ((12, 0, 0), (18, 30, 30)),
        ((40, 0, 0), (0, 25, 25)),
        ((10, 5, 0), (35, 40)),
        ((10, 20, 15), (45,)),
    ],
)
def test_ended_regimes_are_restated_and_the_rest_is_divided_evenly(
    done: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    regimes = Regimes(90, tuple(Regime(32, 10.0, own) for own in done))
    assert epochs_left(regimes) == pytest.approx(expected)


def test_a_forecast_is_of_the_regimes_or_that_all_goes_on() -> None:
    pool = pool_of(pool_snapshot())
    job = changing("a", (10.0, 20.0), (5.0, 10.0), epochs=60)
    assert forecast(job, pool) == RuntimeForecast(0.5, (RunPhase(0.5, 150.0),))
    known = replace(job, truth=GroundTruth({4: 2.0}, 375.0))
    assert forecast(known, pool) == RuntimeForecast(0.25, (RunPhase(0.75, 750.0),))
    unknown = replace(job, truth=None, remaining_examples=None)
    assert forecast(unknown, pool).progress == 0.5


def test_a_logarithm_is_straight_between_points() -> None:
    points = ShockwaveParameters().utility_points
    for point in points[1:]:
        assert log_utility(point, points, 1e-6) == pytest.approx(math.log(point))
    assert log_utility(0.0, points, 1e-6) == pytest.approx(math.log(1e-6))
    middle = (math.log(0.2) + math.log(0.4)) / 2
    assert log_utility(0.3, points, 1e-6) == pytest.approx(middle)


@given(values=st.lists(st.floats(-10, 10), min_size=1, max_size=12))
def test_the_concave_series_is_above_and_no_further_than_it_must(values: list[float]) -> None:
    found = concave(values)
    assert all(above >= value - 1e-9 for above, value in zip(found, values, strict=True))
    for place in range(1, len(values) - 1):
        assert 2 * found[place] >= found[place - 1] + found[place + 1] - 1e-6
    assert concave(found) == pytest.approx(found)
    assert max(found) == pytest.approx(max(values))


@st.composite
def markets(draw: st.DrawFn) -> tuple[list[Bidder], Window]:
    rounds = draw(st.integers(1, 3))
    bidders = [
        Bidder(
            devices=draw(st.integers(1, 3)),
            utilities=concave(
                draw(st.lists(st.floats(-5, 5), min_size=rounds + 1, max_size=rounds + 1))
            ),
            left_rounds=draw(st.floats(0.5, 9.0)),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    k = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return bidders, Window(rounds, draw(st.integers(1, 4)), k, 5.0)


@given(market=markets())
@settings(max_examples=25, deadline=None)
def test_the_window_is_the_best_there_is(market: tuple[list[Bidder], Window]) -> None:
    bidders, window = market

    def worth(rounds: tuple[int, ...]) -> float:
        pairs = list(zip(bidders, rounds, strict=True))
        mean = sum(each.utilities[own] for each, own in pairs) / len(bidders)
        ends = max(max(each.left_rounds - own, 0.0) for each, own in pairs) / window.rounds
        k = window.makespan_weight
        return (1 - k) * mean - k * ends

    def fits(rounds: tuple[int, ...]) -> bool:
        pairs = list(zip(bidders, rounds, strict=True))
        used = sum(each.devices * own for each, own in pairs)
        useful = all(
            own <= (math.ceil(each.left_rounds) if each.devices <= window.devices else 0)
            for each, own in pairs
        )
        return useful and used <= window.devices * window.rounds

    choices = product(range(window.rounds + 1), repeat=len(bidders))
    best = max(worth(rounds) for rounds in choices if fits(rounds))
    found = tuple(rounds_of(bidders, window))
    assert fits(found)
    assert worth(found) >= best - 2e-3 * max(abs(best), 1.0)


def test_a_job_that_would_end_unfairly_late_goes_before_one_that_gains_more() -> None:
    """The one has waited as long as is fair; the other came at a time of many jobs."""
    late = changing("late", (60.0, 10.0), epochs=20, submitted_seconds=NOW - 600)
    early = changing("early", (60.0, 1.0), epochs=5, submitted_seconds=NOW - 60)
    crowded = replace(early, service=replace(early.service, mean_active_jobs=40.0))
    moment = replace(pool_snapshot(late, crowded, offers=machines(1)), replan_seconds=120.0)
    for weight, winner in ((0.0, "early"), (30.0, "late")):
        policy = ShockwavePolicy(
            ShockwaveParameters(rounds=2, makespan_weight=0.0, unfairness_weight=weight)
        )
        assert sizes(policy.plan(moment))[winner] == 4


def test_the_longest_job_goes_first_where_only_the_end_counts() -> None:
    jobs = [changing(f"job-{n}", (60.0, 0.0), epochs=10 * (n + 1)) for n in range(3)]
    policy = ShockwavePolicy(ShockwaveParameters(rounds=5, makespan_weight=1.0))
    moment = replace(pool_snapshot(*jobs, offers=machines(1)), replan_seconds=60.0)
    plan = policy.plan(moment)
    assert sizes(plan) == {"job-0": 0, "job-1": 0, "job-2": 4}
    assert plan.decisions[2].reason.startswith("start job-2 with 4 on node-000: 5 of the next 5")


@pytest.mark.parametrize(
    "values",
    [
        {"rounds": 0},
        {"makespan_weight": 1.5},
        {"unfairness_weight": -1.0},
        {"least_progress": 0.0},
        {"utility_points": (0.0, 0.5)},
    ],
)
def test_parameters_that_make_no_window_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        ShockwaveParameters(**values)  # type: ignore[arg-type]
