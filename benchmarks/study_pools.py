"""Arms on a pool of fixed size: static, Pollux's fair speed-up, Ray Tune's two rules.

Each knows the true speeds. A pool is swept over its sizes, and the cheapest that is done by the
deadline counts: no one could know it before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from study_cases import Case
from study_cloud import Orders, View

POOLS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)

# What trials hold, by trial; of all the trials of the rung that are not done.
Rule = Callable[["Pool", View], dict[int, int]]


@dataclass(frozen=True, eq=False)
class Pool:
    """`size` instances from the beginning to the end of the study, shared by a rule."""

    case: Case
    size: int
    rule: Rule

    def decide(self, view: View) -> Orders:
        """What the rule says; nothing is given back, and what was reclaimed is ordered anew."""
        held = sum(self.needs[t.held] for t in view.trials if t.held is not None)
        missing = max(self.size - held - len(view.free), 0)
        sizes = self.rule(self, view)
        taken = sum(self.needs[size] for size in sizes.values() if size >= 0)
        extra = max(taken - held - len(view.free), 0) if missing else 0
        return Orders(sizes, keep=self.size, order=max(missing - extra, 0))

    @cached_property
    def needs(self) -> list[int]:
        """Instances of each size."""
        return [int(n) for n in self.case.market.supply.instances]

    def stage_size(self, rung: int) -> int:
        """The size for all trials of a rung at which it is over soonest."""
        fits = [s for s, n in enumerate(self.needs) if n <= self.size]
        return min(fits, key=lambda s: makespan(self.case, rung, s, self.size // self.needs[s]))


def makespan(case: Case, rung: int, size: int, lanes: int) -> float:
    """Seconds of a rung, longest trial first, all at one size on so many lanes."""
    return max(lane_seconds(case, rung, size, lanes))


def lane_seconds(case: Case, rung: int, size: int, lanes: int) -> list[float]:
    """When each lane is done."""
    ends = [0.0] * min(lanes, len(case.survivors[rung]))
    for seconds in sorted(durations(case, rung, size), reverse=True):
        first = ends.index(min(ends))
        ends[first] += seconds
    return ends


def durations(case: Case, rung: int, size: int) -> list[float]:
    """Seconds of each trial of a rung on a size, from a ready instance."""
    start = case.market.handover_seconds
    return [start + case.work_of(rung, t) / case.rate[t, size] for t in case.survivors[rung]]


def longest_first(case: Case, view: View, size: int) -> list[int]:
    """Trials that wait, the longest first."""
    waits = [t for t in view.trials if t.held is None]
    order = sorted(waits, key=lambda t: t.work / case.rate[t.trial, size], reverse=True)
    return [t.trial for t in order]


def static(pool: Pool, view: View) -> dict[int, int]:
    """Each trial at the size that is best for the rung, one after the other."""
    size = pool.stage_size(view.rung)
    held = sum(pool.needs[t.held] for t in view.trials if t.held is not None)
    room = (pool.size - held) // pool.needs[size]
    return dict.fromkeys(longest_first(pool.case, view, size)[:room], size)


def fair_speedup(pool: Pool, view: View) -> dict[int, int]:
    """Pollux's fitness with p = -1: the harmonic mean of speed-ups over a fair share.

    One more step to whom it raises the fitness most a device: exact where speed-ups are concave.
    """
    order = [t.trial for t in view.trials if t.held is not None]
    order += longest_first(pool.case, view, 0)
    active = order[: pool.size]
    fair = max(pool.size // max(len(active), 1), 1)
    fair_size = max(s for s, n in enumerate(pool.needs) if n <= fair)
    rate = pool.case.rate
    sizes = dict.fromkeys(active, 0)
    left = pool.size - len(active)
    while True:
        gains = [
            (_fitness_gain(rate[t], (s, s_next), fair_size) / step, t, s_next)
            for t, s in sizes.items()
            for s_next in range(s + 1, len(pool.needs))
            if (step := pool.needs[s_next] - pool.needs[s]) <= left and step > 0
        ]
        gain, trial, size = max(gains, default=(0.0, 0, 0))
        if gain <= 0:
            return _worth_a_pause(pool, view, sizes)
        left -= pool.needs[size] - pool.needs[sizes[trial]]
        sizes[trial] = size


def _fitness_gain(rate: np.ndarray, step: tuple[int, int], fair_size: int) -> float:
    return float(rate[fair_size] / rate[step[0]] - rate[fair_size] / rate[step[1]])


def _worth_a_pause(pool: Pool, view: View, sizes: dict[int, int]) -> dict[int, int]:
    """Without the changes that a trial would be done before, or slower by."""
    kept = dict(sizes)
    for t in view.trials:
        if t.held is None or t.trial not in kept or kept[t.trial] <= t.held:
            continue
        now = t.work / pool.case.rate[t.trial, t.held]
        then = t.work / pool.case.rate[t.trial, kept[t.trial]] + pool.case.market.pause_seconds
        if then >= now:
            kept[t.trial] = t.held
    return kept


def ray_uniform(pool: Pool, view: View) -> dict[int, int]:
    """Ray Tune's DistributeResources: what is free is split evenly among running trials."""
    order = [t.trial for t in view.trials if t.held is not None]
    order += longest_first(pool.case, view, 0)
    active = order[: pool.size]
    share = max(pool.size // max(len(active), 1), 1)
    return _worth_a_pause(pool, view, dict.fromkeys(active, _at_most(pool, share)))


def ray_top_job(pool: Pool, view: View) -> dict[int, int]:
    """Ray Tune's DistributeResourcesToTopJob: the best so far gets all that is free."""
    order = [t.trial for t in view.trials if t.held is not None]
    order += longest_first(pool.case, view, 0)
    active = order[: pool.size]
    sizes = dict.fromkeys(active, 0)
    if active:
        top = max(active, key=lambda t: _seen(pool.case, view.rung, t))
        sizes[top] = _at_most(pool, pool.size - len(active) + 1)
    return _worth_a_pause(pool, view, sizes)


def _seen(case: Case, rung: int, trial: int) -> float:
    return float(case.values[rung - 1, trial]) if rung else 0.0


def _at_most(pool: Pool, instances: int) -> int:
    return max(s for s, n in enumerate(pool.needs) if n <= max(instances, 1))


RULES: dict[str, Rule] = {
    "best static pool": static,
    "Pollux, best pool": fair_speedup,
    "Ray uniform, best pool": ray_uniform,
    "Ray top job, best pool": ray_top_job,
}


def pools(case: Case, rule: Rule) -> Sequence[Pool]:
    """The pools of the sweep, within the quota."""
    most = case.market.most_devices // case.market.devices
    return [Pool(case, size, rule) for size in POOLS if size <= most]
