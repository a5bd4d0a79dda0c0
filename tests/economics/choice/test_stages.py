from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.choice.stages import (
    CHECKPOINT_SECONDS,
    RemainingConstraints,
    Shortfall,
    Stages,
    plan_stages,
    quantile,
    required_draws,
)
from autoscaler.economics.choice.switching import SwitchContext, switches
from autoscaler.economics.pricing.price import hull
from tests.economics.cases import SMALL, job, model, snapshot
from tests.economics.choice.test_switching import ground_of
from tests.economics.strategies import snapshots

WORK = 9000.0
REPLAN_SECONDS = 5.0


class Sequence:
    """Time and money of two allocations in sequence, by draw, in plain loops."""

    def __init__(self, at: SwitchContext, first: int, then: int) -> None:
        every = at.candidates
        entry = switches(at, every.held, np.array([first]))
        change = switches(at, first, np.array([then]))
        held = 0.0 if every.held is None else float(every.usd_per_second[every.held])
        self.price = [float(every.usd_per_second[i]) for i in (first, then)]
        self.seconds = [every.seconds_per_example[:, i].tolist() for i in (first, then)]
        ready, pause = float(entry.ready_seconds[0]), float(entry.pause_seconds[0])
        self.before_seconds = ready + pause + float(change.lost_seconds[0])
        self.before_usd = float(entry.boot_usd[0]) + pause * self.price[0]
        if entry.trains_during_boot[0]:
            self.before_usd += ready * held
        self.before_usd += float(change.boot_usd[0])
        self.before_usd += float(change.pause_seconds[0]) * self.price[1]
        ahead = float(change.ready_seconds[0]) if change.trains_during_boot[0] else 0.0
        self.least = min(ahead * float(every.rate[first]), WORK)
        self.reserve = CHECKPOINT_SECONDS * max(self.price)

    def ends(self, done: float) -> list[tuple[float, float]]:
        """Return (seconds, US dollars) of each draw for a change after `done` examples."""
        ends_of_draws = []
        for slow, fast in zip(*self.seconds, strict=True):
            times = (done * slow, (WORK - done) * fast)
            usd = sum(
                usd_per_second * seconds
                for usd_per_second, seconds in zip(self.price, times, strict=True)
            )
            ends_of_draws.append((self.before_seconds + sum(times), self.before_usd + usd))
        return ends_of_draws

    def keeps(self, done: float, ends: RemainingConstraints) -> int:
        return sum(
            (ends.seconds is None or seconds <= ends.seconds)
            and (ends.usd is None or usd + self.reserve <= ends.usd)
            for seconds, usd in self.ends(done)
        )

    def mean(self, done: float) -> tuple[float, float]:
        seconds, usd = zip(*self.ends(done), strict=True)
        return sum(seconds) / len(seconds), sum(usd) / len(usd)


def sequences(at: SwitchContext, ends: RemainingConstraints) -> list[Sequence]:
    every = at.candidates
    corners = set(hull(every.usd_per_second, every.rate, every.allowed))
    if every.held is not None and every.allowed[every.held]:
        corners.add(every.held)
    price = every.usd_per_second
    pairs = [
        pair
        for pair in itertools.product(corners, repeat=2)
        if price[pair[0]] == price[pair[1]]
        or (price[pair[0]] > price[pair[1]]) == (ends.seconds is None)
        or (ends.seconds is not None and pair[0] == every.held)
    ]
    return [Sequence(at, *pair) for pair in pairs]


def brute_force(at: SwitchContext, ends: RemainingConstraints) -> float | None:
    """Return the least expected money (time without a deadline) on a grid of changes."""
    needed = required_draws(ends.confidence, len(at.candidates.goodput))
    means = []
    for pair in sequences(at, ends):
        for done in np.linspace(pair.least, WORK, 40).tolist():
            if pair.keeps(done, ends) >= needed:
                means.append(pair.mean(done)[0 if ends.seconds is None else 1])
    return min(means, default=None)


ENDS = st.builds(
    RemainingConstraints,
    seconds=st.none() | st.floats(20.0, 2000.0),
    usd=st.none() | st.floats(0.001, 0.5),
    confidence=st.floats(0.5, 0.95),
).filter(lambda ends: ends.seconds is not None or ends.usd is not None)


@given(snapshots(draws=7), ENDS)
def test_the_plan_keeps_its_ends_and_no_sequence_is_better(
    moment: Snapshot, ends: RemainingConstraints
) -> None:
    at = ground_of(moment.jobs[0], moment)
    assume(at.candidates.allowed.any())
    plan = plan_stages(at, WORK, ends, 0.0)
    best = brute_force(at, ends)
    if best is not None:
        assert isinstance(plan, Stages)
        objective = plan.seconds if ends.seconds is None else plan.usd
        assert objective <= best * (1 + 1e-6)
        assert plan.chance >= required_draws(ends.confidence, 7) / 7
    if isinstance(plan, Stages) and plan.order_seconds < math.inf:
        pair = Sequence(at, plan.first, plan.then)
        kept = pair.keeps(plan.change_examples * (1 - 1e-9), ends)
        also = pair.keeps(plan.change_examples * (1 + 1e-9), ends)
        assert max(kept, also, pair.keeps(plan.change_examples, ends)) >= 7 * plan.chance - 1e-6
    if isinstance(plan, Shortfall):
        most = max(
            pair.keeps(done, ends)
            for pair in sequences(at, ends)
            for done in np.linspace(pair.least, WORK, 10).tolist()
        )
        assert most < 0.5 * 7


@given(snapshots(draws=5), st.floats(50.0, 2000.0), st.floats(0.2, 1.0))
def test_a_tighter_deadline_is_never_cheaper(
    moment: Snapshot, seconds: float, share: float
) -> None:
    at = ground_of(moment.jobs[0], moment)
    assume(at.candidates.allowed.any())
    loose = plan_stages(at, WORK, RemainingConstraints(seconds, None, 0.9), 0.0)
    tight = plan_stages(at, WORK, RemainingConstraints(seconds * share, None, 0.9), 0.0)
    if isinstance(tight, Stages) and tight.chance == 1.0 and isinstance(loose, Stages):
        assert loose.usd <= tight.usd * (1 + 1e-9)


@given(snapshots(draws=5), st.floats(0.001, 0.5))
def test_a_budget_is_kept_with_a_checkpoint_to_spare(moment: Snapshot, usd: float) -> None:
    at = ground_of(moment.jobs[0], moment)
    assume(at.candidates.allowed.any())
    plan = plan_stages(at, WORK, RemainingConstraints(None, usd, 0.9), 0.0)
    if isinstance(plan, Stages) and plan.chance == 1.0:
        reserve = CHECKPOINT_SECONDS * float(at.candidates.usd_per_second[plan.first])
        assert plan.usd + reserve <= usd * (1 + 1e-9)


def held_on_one(draws: int = 1, spread: float = 0.0) -> SwitchContext:
    unsure = model(draws=draws, spread=spread)
    job_snapshot = job(held=Allocation("local-small", 1, 1), models=unsure)
    return ground_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL,)))


def test_the_cheaper_is_held_until_the_dearer_has_to_be_ordered() -> None:
    # 90 s on one instance, 48 s on two: 80 s are met by adding the second at some time.
    at = held_on_one()
    plan = plan_stages(at, WORK, RemainingConstraints(80.0, None, 0.9), REPLAN_SECONDS)
    assert isinstance(plan, Stages)
    fast = float(at.candidates.rate[plan.then])
    change = (80.0 - 0.05 - WORK / fast) / (1 / 100 - 1 / fast)
    assert str(at.candidates.allocation(plan.first)) == "1 x local-small"
    assert plan.change_examples == pytest.approx(change)
    assert plan.order_seconds == pytest.approx(change / 100 - 6.0)
    assert plan.seconds == pytest.approx(80.0)


def test_the_dearer_is_ordered_once_it_can_not_wait_for_the_next_plan() -> None:
    at = held_on_one()
    early = plan_stages(at, WORK, RemainingConstraints(80.0, None, 0.9), REPLAN_SECONDS)
    assert isinstance(early, Stages)
    assert early.first == at.candidates.held
    at_once = plan_stages(
        at, WORK, RemainingConstraints(80.0, None, 0.9), early.order_seconds + 1.0
    )
    assert isinstance(at_once, Stages)
    assert at_once.first == at_once.then == early.then


def test_the_dearer_that_is_held_comes_first_and_is_kept_until_it_has_done_enough() -> None:
    job_snapshot = job(held=Allocation("local-small", 2, 1))
    at = ground_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL,)))
    plan = plan_stages(at, WORK, RemainingConstraints(80.0, None, 0.9), REPLAN_SECONDS)
    assert isinstance(plan, Stages)
    assert plan.first == at.candidates.held
    assert str(at.candidates.allocation(plan.then)) == "1 x local-small"
    assert plan.seconds == pytest.approx(80.0)
    # An earlier release would miss the deadline, however late the next plan is.
    patient = plan_stages(at, WORK, RemainingConstraints(80.0, None, 0.9), 1000.0)
    assert patient == plan
    loose = plan_stages(at, WORK, RemainingConstraints(91.0, None, 0.9), REPLAN_SECONDS)
    assert isinstance(loose, Stages)
    assert str(at.candidates.allocation(loose.first)) == "1 x local-small"


def test_the_dearer_is_held_until_the_budget_needs_the_cheaper() -> None:
    job_snapshot = job(held=Allocation("local-small", 4, 1))
    at = ground_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL,)))
    four = WORK / float(at.candidates.rate[3]) * 0.40
    reserve = CHECKPOINT_SECONDS * 0.40
    usd = (0.98 * four + reserve) / 3600
    plan = plan_stages(at, WORK, RemainingConstraints(None, usd, 0.9), 0.0)
    assert isinstance(plan, Stages)
    assert plan.first == at.candidates.held
    assert at.candidates.usd_per_second[plan.then] * 3600 == pytest.approx(0.20)
    assert plan.usd * 3600 == pytest.approx(usd * 3600 - reserve)


def test_what_is_out_of_reach_says_by_how_much() -> None:
    at = held_on_one()
    plan = plan_stages(at, WORK, RemainingConstraints(10.0, None, 0.9), REPLAN_SECONDS)
    assert isinstance(plan, Shortfall)
    assert plan.misses_seconds
    assert not plan.misses_usd
    assert plan.seconds == pytest.approx(6.05 + WORK / float(at.candidates.rate.max()), rel=0.02)
    plan = plan_stages(at, WORK, RemainingConstraints(None, 0.001, 0.9), REPLAN_SECONDS)
    assert isinstance(plan, Shortfall)
    assert plan.misses_usd
    assert plan.usd * 3600 == pytest.approx(90 * 0.10 + CHECKPOINT_SECONDS * 0.10)


def test_a_deadline_and_a_budget_that_do_not_go_together() -> None:
    at = held_on_one()
    both = plan_stages(at, WORK, RemainingConstraints(60.0, 0.0034, 0.9), REPLAN_SECONDS)
    assert isinstance(both, Shortfall)
    assert not both.misses_seconds
    assert not both.misses_usd
    assert isinstance(plan_stages(at, WORK, RemainingConstraints(60.0, 1.0, 0.9), 0.0), Stages)


def test_a_deadline_at_less_than_its_confidence_is_still_tried_for() -> None:
    at = held_on_one(draws=16, spread=0.3)
    seconds = np.sort(WORK * at.candidates.seconds_per_example, axis=0)
    fastest = float(seconds[11].min()) + 6.05
    plan = plan_stages(at, WORK, RemainingConstraints(fastest, None, 0.9), 0.0)
    assert isinstance(plan, Stages)
    assert 0.5 <= plan.chance < 0.9


def test_no_candidate_is_an_error() -> None:
    job_snapshot = job(models={})
    with pytest.raises(ValueError, match="no allocation is allowed"):
        plan_stages(
            ground_of(job_snapshot, snapshot(job_snapshot)),
            WORK,
            RemainingConstraints(10.0, None, 0.9),
            0.0,
        )


def test_quantiles_of_few_draws_are_not_too_sure() -> None:
    assert required_draws(0.9, 32) == 30
    assert required_draws(0.9, 9) == 9
    assert required_draws(0.5, 1) == 1
    sample = np.arange(32.0)
    assert quantile(sample, 0.9) == 29.0
    assert quantile(sample[::-1], 0.5) == 16.0
