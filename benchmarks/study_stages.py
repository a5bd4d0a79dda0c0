"""Arms that plan stage by stage: per-stage elastic, uniform with release, and one that learns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from study_cases import RUNG_TRIALS, Case
from study_cloud import Orders, Outcome, StudyCloud, View
from study_pools import lane_seconds, longest_first
from study_water import Learnt

from autoscaler.economics.studies.rungs.synchronous import RESERVE
from autoscaler.economics.studies.speeds.trial_speeds import median_where_unmeasured

# Share of the draws of a trial's speed that are at least as fast as what is planned with.
_CAUTION = 0.5
_STAGE_MARGIN = 0.02


@dataclass(frozen=True)
class Stage:
    """All trials of a rung at one size, so many at a time."""

    size: int
    lanes: int


@dataclass(frozen=True)
class Course:
    """A stage for each rung, with the seconds and the cost that are expected of it."""

    seconds: float
    usd: float
    stages: tuple[Stage, ...]


@dataclass(frozen=True, eq=False)
class StageArm:
    """A cluster that changes its size between stages (RubberBand's shape).

    With `releases`, an instance is let go when no trial waits for it, unless the next stage
    begins within a boot. What the next stage needs more is ordered a boot ahead.
    """

    case: Case
    stages: tuple[Stage, ...]
    releases: bool

    @cached_property
    def needs(self) -> list[int]:
        """Instances of each size."""
        return [int(n) for n in self.case.market.supply.instances]

    def decide(self, view: View) -> Orders:
        """Waiting trials on the lanes that are free; the rest as the arm has it."""
        stage, boot = self.stages[view.rung], self.case.market.boot_seconds
        running = sum(t.held is not None for t in view.trials)
        waiting = longest_first(self.case, view, stage.size)
        starts = waiting[: stage.lanes - running]
        sizes = dict.fromkeys(starts, stage.size)
        held = sum(self.needs[t.held] for t in view.trials if t.held is not None)
        will_hold = held + len(starts) * self.needs[stage.size]
        free = max(held + len(view.free) - will_hold, 0)
        left = self._seconds_left(view) if len(waiting) == len(starts) else math.inf
        if starts:
            left = min(left, self._longest(view, starts))
        needed = self._instances(view.rung + 1)
        keep = min(free, max(needed - will_hold, 0)) if left <= boot else 0
        if not self.releases:
            keep = max(keep, min(free, self._instances(view.rung) - will_hold))
        order = max(needed - will_hold - keep, 0) if left <= boot and not starts else 0
        wake = left - boot if left > boot else math.inf
        return Orders(sizes, keep, order, wake)

    def _instances(self, rung: int) -> int:
        if rung >= len(self.stages):
            return 0
        return self.stages[rung].lanes * self.needs[self.stages[rung].size]

    def _seconds_left(self, view: View) -> float:
        rate = self.case.rate
        ends = [
            t.ready_seconds + t.work / rate[t.trial, t.held]
            for t in view.trials
            if t.held is not None
        ]
        return max(ends, default=0.0)

    def _longest(self, view: View, starts: list[int]) -> float:
        market, size = self.case.market, self.stages[view.rung].size
        wait = market.boot_seconds + market.start_seconds
        work = {t.trial: t.work for t in view.trials}
        least = max(work[t] / self.case.rate[t, size] for t in starts)
        return max(wait + least, self._seconds_left(view))


@dataclass(frozen=True, eq=False)
class Guess(Case):
    """A study as it is believed to be: trials `left` in the rung `now`, with their epochs."""

    now: int
    left: Mapping[int, float]

    @cached_property
    def survivors(self) -> tuple[tuple[int, ...], ...]:
        """Who trains in each rung: in the present one those that are not done."""
        every = super().survivors
        return (*every[: self.now], tuple(self.left), *every[self.now + 1 :])

    def work_of(self, rung: int, trial: int) -> float:
        """Epochs that a trial has to train in a rung."""
        return self.left[trial] if rung == self.now else self.work[rung]


@dataclass(eq=False)
class LearntStages:
    """Per-stage elastic in waves, planned anew at each event by what was learnt until then.

    All trials of a rung have one size, so many at a time, longest first; an instance is released
    when no trial waits for it. A stage is changed where it is no longer in time, or where another
    saves `_STAGE_MARGIN`. Survivors of later rungs are guessed to be the best so far. A trial's
    rate is its median; a fifth of the draws below it, as in the product's packings, cost more.
    """

    case: Case
    knowledge: Learnt
    deadline_seconds: float
    stage: Stage | None = None
    rung: int = -1

    def decide(self, view: View) -> Orders:
        """Plan the stages, and put the trials of this rung on the present one."""
        guess = self._guess(view)
        needs = self.case.market.supply.instances
        held = sum(int(needs[t.held]) for t in view.trials if t.held is not None) + len(view.free)
        possible = courses(guess, True, view.rung, held=held)
        left = (self.deadline_seconds - view.now) * (1.0 - RESERVE)
        in_time = [one for one in possible if one.seconds <= left]
        best = in_time[0] if in_time else min(possible, key=lambda one: one.seconds)
        if self.rung == view.rung:
            same = [one for one in in_time if one.stages[0] == self.stage]
            if same and same[0].usd <= best.usd * (1.0 + _STAGE_MARGIN):
                best = same[0]
        self.rung, self.stage = view.rung, best.stages[0]
        stages = (best.stages[0],) * view.rung + best.stages
        orders = StageArm(guess, stages, True).decide(view)
        return replace(orders, sizes={**orders.sizes, **self._grown(view, guess)})

    def _grown(self, view: View, guess: Guess) -> dict[int, int]:
        """The size of the stage, for trials that train and are done sooner on it."""
        assert self.stage is not None
        size, market = self.stage.size, self.case.market
        change = market.boot_seconds + market.pause_seconds
        return {
            trial.trial: size
            for trial in view.trials
            if trial.held is not None
            and not trial.is_changing
            and trial.held < size
            and change + trial.work / guess.rate[trial.trial, size]
            < trial.work / guess.rate[trial.trial, trial.held]
        }

    def _guess(self, view: View) -> Guess:
        draws = self.knowledge.rates(view)
        is_known = np.isin(np.arange(draws.shape[1]), list(self.knowledge.known(view)))
        values = self.case.values.copy()
        values[view.rung :] = values[view.rung - 1] if view.rung else 0.0
        terms = {field.name: getattr(self.case, field.name) for field in fields(Case)}
        terms["rate"] = np.quantile(
            median_where_unmeasured(draws, is_known), 1.0 - _CAUTION, axis=0
        )
        terms["values"] = values
        return Guess(**terms, now=view.rung, left={t.trial: t.work for t in view.trials})


def best_stages(
    case: Case, deadline_seconds: float, releases: bool, found: list[Course]
) -> Outcome | None:
    """The cheapest course that is done in time when it is simulated; None if there is none."""
    for course in found:
        if course.seconds > deadline_seconds * 1.05:
            continue
        outcome = StudyCloud(case, StageArm(case, course.stages, releases)).run()
        if outcome.seconds <= deadline_seconds:
            return outcome
    return None


def courses(
    case: Case, releases: bool, first: int = 0, waves: bool = True, held: int = 0
) -> list[Course]:
    """All courses from a rung on that are best at some deadline, the cheapest first.

    Without `waves` all trials of a stage train at once. `held` instances are there already.
    """
    best = [Course(0.0, 0.0, ())]
    for rung in range(first, len(RUNG_TRIALS)):
        options = list(_options(case, rung, releases, waves))
        best = _pareto(_after(case, one, option, held) for one in best for option in options)
    return sorted(best, key=lambda one: one.usd)


def _options(case: Case, rung: int, releases: bool, waves: bool) -> Iterator[Course]:
    market, supply = case.market, case.market.supply
    quota = market.most_devices // market.devices
    found = []
    for size, instances in enumerate(supply.instances):
        trials = len(case.survivors[rung])
        most = min(quota // int(instances), trials)
        least = 1 if waves else trials
        for lanes in range(least, most + 1):
            ends = lane_seconds(case, rung, size, lanes)
            paid = sum(ends) if releases else lanes * max(ends)
            usd = paid * float(supply.usd_per_second[size])
            found.append(Course(max(ends), usd, (Stage(size, lanes),)))
    yield from _pareto(iter(found))


def _after(case: Case, before: Course, option: Course, held: int) -> Course:
    """One stage more: the first boots all, a later one what the stage before has not got."""
    market, supply = case.market, case.market.supply
    stage = option.stages[0]
    if before.stages:
        last = before.stages[-1]
        held = last.lanes * int(supply.instances[last.size])
    new = max(stage.lanes * int(supply.instances[stage.size]) - held, 0)
    usd = new * market.boot_seconds * supply.offers[0].usd_per_second
    wait = 0.0 if before.stages or not new else market.boot_seconds
    return Course(
        before.seconds + option.seconds + wait,
        before.usd + option.usd + usd,
        (*before.stages, stage),
    )


def _pareto(found: Iterator[Course]) -> list[Course]:
    """Without those that another is at least as fast and as cheap as; the fastest first."""
    kept: list[Course] = []
    for one in sorted(found, key=lambda one: (one.seconds, one.usd)):
        if not kept or one.usd < kept[-1].usd - 1e-9:
            kept.append(one)
    return kept
