"""Studies on a pool of fixed size, for comparison with elastic ones.

Each trial has one instance, first come, first served. All instances are held from the first order
to the end of the study, and reclaimed instances are reordered.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from autoscaler.domain.offer import Offer
from autoscaler.simulator.studies.searches import SynchronousHalving, UnderWay, search_of
from autoscaler.simulator.studies.study import SimulatedStudy


@dataclass(frozen=True, slots=True)
class StaticPool:
    """`size` instances of an offer, on which trials are `times` as fast as on one device."""

    offer: Offer
    size: int
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class PoolRun:
    """Duration of a study on a pool, boot included, and its cost."""

    seconds: float
    usd: float


def run_on_pool(study: SimulatedStudy, pool: StaticPool, seed: int) -> PoolRun:
    """Simulate the study on a pool that is ordered for it."""
    seconds = _PoolSimulation(study, pool, np.random.default_rng(seed)).run()
    billed_seconds = math.ceil(max(seconds, pool.offer.minimum_billed_seconds))
    return PoolRun(seconds, pool.size * billed_seconds * pool.offer.usd_per_second)


@dataclass(eq=False)
class _PoolSimulation:
    """State of a running study; `done` counts the reports of each trial."""

    study: SimulatedStudy
    pool: StaticPool
    source: np.random.Generator
    done: dict[int, int] = field(default_factory=dict)
    goals: dict[int, float] = field(default_factory=dict)
    queue: deque[int] = field(default_factory=deque)
    running: list[tuple[float, int]] = field(default_factory=list)
    arrived: dict[int, float] = field(default_factory=dict)
    begun: int = 0
    used: int = 0

    def run(self) -> float:
        """Return the seconds until the last trial has ended."""
        search = search_of(self.study.rule, self.study.maximize)
        now_seconds = self.pool.offer.boot_seconds + self.pool.offer.fill_seconds
        while True:
            while search.to_begin(UnderWay(self.begun, len(self.goals), len(self.queue))):
                self.goals[self.begun] = search.first_goal(self.begun)
                self.done[self.begun] = 0
                self.queue.append(self.begun)
                self.begun += 1
                self._start(now_seconds)
            self._start(now_seconds)
            if not self.running:
                return now_seconds
            now_seconds, trial = heapq.heappop(self.running)
            self._arrive(trial)
            judged = search.judge(self.arrived, len(self.goals) - len(self.arrived))
            self._apply(judged, now_seconds)

    def _start(self, now_seconds: float) -> None:
        while self.queue and len(self.running) < self.pool.size:
            trial = self.queue.popleft()
            is_fresh = self.used < self.pool.size
            start_seconds = self.study.start_seconds if is_fresh else self.study.handover_seconds
            self.used += is_fresh
            self._train(trial, now_seconds + (start_seconds or 0.0))

    def _train(self, trial: int, from_seconds: float) -> None:
        curve = self.study.trials[trial].curve
        reports = curve.reports_until(min(self.goals[trial], self._last(trial)))
        ends, earlier_reports = curve.end_seconds, self.done[trial]
        work_seconds = (
            ends[reports - 1] - (ends[earlier_reports - 1] if earlier_reports else 0.0)
        ) / self.pool.times
        self.done[trial] = reports
        heapq.heappush(self.running, (from_seconds + self._reclaimed(work_seconds), trial))

    def _reclaimed(self, work_seconds: float) -> float:
        """Return seconds of work with a boot and a start for each drawn reclaim."""
        offer = self.pool.offer
        if not offer.reclaims_per_hour:
            return work_seconds
        count = int(self.source.poisson(offer.reclaims_per_hour * work_seconds / 3600))
        return work_seconds + count * (offer.boot_seconds + (self.study.start_seconds or 0.0))

    def _last(self, trial: int) -> float:
        rule = self.study.rule
        last_epoch = self.study.trials[trial].curve.epochs[-1]
        return rule.rungs[-1] if isinstance(rule, SynchronousHalving) else last_epoch

    def _arrive(self, trial: int) -> None:
        if self.goals[trial] >= self._last(trial):
            del self.goals[trial]
        else:
            curve = self.study.trials[trial].curve
            self.arrived[trial] = curve.values[self.done[trial] - 1]

    def _apply(self, judged: Mapping[int, float | None], now_seconds: float) -> None:
        """Apply judgements: a trial goes on at its place, or in the queue after a barrier."""
        waits = isinstance(self.study.rule, SynchronousHalving)
        for trial, goal in judged.items():
            del self.arrived[trial]
            if goal is None:
                del self.goals[trial]
                continue
            self.goals[trial] = goal
            if waits:
                self.queue.append(trial)
            else:
                self._train(trial, now_seconds)
