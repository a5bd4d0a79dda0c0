"""Arms of an asynchronous study: plain trials, a reserve, Ray Tune's rules and HyperSched's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from search_cloud import EPOCHS, ETA, RUNGS, SearchCase, SearchTerms, SearchView
from study_cloud import Orders

_COOLDOWN_REPORTS = 5
_GAIN = 1.1


@dataclass(frozen=True, eq=False)
class Plain:
    """So many instances, each with one trial after the other: the pruner's `n_jobs`."""

    case: SearchCase
    size: int

    def decide_search(self, view: SearchView) -> Orders:
        """The next trial wherever one has ended."""
        room = self.size - len(view.trials)
        return Orders(dict.fromkeys(view.fresh[: max(room, 0)], 0))


@dataclass(frozen=True, eq=False)
class Reserve:
    """Plain trials on the quota, as many as the money left brings to their ends.

    What the trials that train need to their ends, at the pace that each has shown and until the
    deadline at most, is kept; the next trial begins if what is left beyond that is enough for all
    of it, and the time left for its first rung.
    """

    case: SearchCase
    terms: SearchTerms
    size: int

    def decide_search(self, view: SearchView) -> Orders:
        """The next trials, as many as there is room and money for."""
        left_seconds = self.terms.deadline_seconds - view.now
        paces = {
            number: (told[-1].seconds - told[0].seconds) / told[-1].epoch
            for number, told in view.told.items()
            if told and told[-1].epoch
        }
        usual = float(np.median(list(paces.values()))) if paces else 0.0
        needs = [
            min((EPOCHS - one.epoch) * paces.get(one.number, usual), left_seconds)
            for one in view.trials
        ]
        price = float(self.case.market.supply.usd_per_second[0])
        left_usd = self.terms.budget_usd - view.spent_usd - price * sum(needs)
        each_usd = price * min(EPOCHS * usual, left_seconds)
        room = self.size - len(view.trials)
        if each_usd > 0:
            room = min(room, int(left_usd / each_usd))
        if usual * RUNGS[0] > left_seconds or left_usd <= 0:
            room = 0
        return Orders(dict.fromkeys(view.fresh[: max(room, 0)], 0))


# What trials that train hold, of the pool, by trial.
Rule = Callable[["RayPool", SearchView, list[int]], dict[int, int]]


@dataclass(frozen=True, eq=False)
class RayPool:
    """A pool of fixed size with at most `at_once` trials; a rule shares out the rest.

    It knows the true speeds, and leaves a change alone that the trial would not live to gain by.
    """

    case: SearchCase
    size: int
    at_once: int
    rule: Rule

    @property
    def needs(self) -> list[int]:
        """Instances of each size."""
        return [int(n) for n in self.case.market.supply.instances]

    def at_most(self, instances: int) -> int:
        """The largest size of so many instances."""
        return max(s for s, n in enumerate(self.needs) if n <= max(instances, 1))

    def decide_search(self, view: SearchView) -> Orders:
        """What the rule says; the pool is kept to the end."""
        active = [one.number for one in view.trials]
        active += view.fresh[: max(self.at_once - len(active), 0)]
        wanted = self.rule(self, view, active)
        sizes = {t: s for t, s in wanted.items() if self._pays(view, t, s)}
        held = sum(self.needs[one.held] for one in view.trials if one.held is not None)
        held += len(view.free)
        new = sum(self.needs[s] for t, s in sizes.items() if t in view.fresh)
        order = self.size - max(held, new) if view.now == 0 else 0
        return Orders(sizes, keep=self.size, order=max(order, 0))

    def _pays(self, view: SearchView, trial: int, size: int) -> bool:
        now = next((one for one in view.trials if one.number == trial), None)
        if now is None or now.held is None or size <= now.held:
            return True
        left, rate = EPOCHS - now.epoch, self.case.rate[trial]
        pause = self.case.market.pause_seconds
        return bool(left / rate[size] + pause < left / rate[now.held])


def ray_uniform(pool: RayPool, view: SearchView, active: list[int]) -> dict[int, int]:
    """DistributeResources: the pool is split evenly among the trials that train."""
    share = pool.size // max(len(active), 1)
    return dict.fromkeys(active, pool.at_most(share))


def ray_top_job(pool: RayPool, view: SearchView, active: list[int]) -> dict[int, int]:
    """DistributeResourcesToTopJob: all that is free to the trial of the best last report."""
    sizes = dict.fromkeys(active, 0)
    seen = [one.number for one in view.trials if one.epoch]
    if seen:
        top = max(seen, key=lambda t: _last(pool.case, view, t))
        sizes[top] = pool.at_most(pool.size - len(active) + 1)
    return sizes


def _last(case: SearchCase, view: SearchView, trial: int) -> float:
    return float(case.values[trial, view.reported[trial] - 1])


@dataclass(eq=False)
class HyperSched:
    """HyperSched (SoCC'19) beside Optuna's pruner: no fresh trials late, then the best grows.

    Nobody new is let in once the time left is under the lesser of eta times the longest trial
    so far and a whole training at the median pace; what comes free then goes to the best, if
    that gains a tenth over going on, five reports after its last change. It knows true speeds.
    Its promotion out of a pause is left to the pruner here, who only stops.
    """

    case: SearchCase
    size: int
    terms: SearchTerms
    _begun: dict[int, float] = field(default_factory=dict)
    _took: dict[int, float] = field(default_factory=dict)
    _changed: dict[int, int] = field(default_factory=dict)

    def decide_search(self, view: SearchView) -> Orders:
        """One instance to each while trials are let in, the rest to the best after."""
        for one in view.trials:
            self._begun.setdefault(one.number, view.now)
            self._took[one.number] = view.now - self._begun[one.number]
        left = self.terms.deadline_seconds - view.now
        held = [int(self.case.market.supply.instances[one.held]) for one in view.trials]
        free = self.size - sum(held)
        if left >= self._closes(view):
            return Orders(dict.fromkeys(view.fresh[: max(free, 0)], 0), keep=self.size)
        return Orders(self._grown(view, free, left), keep=self.size if view.trials else 0)

    def _closes(self, view: SearchView) -> float:
        done = [(self._took[t], n) for t, n in view.reported.items() if n and t in self._took]
        if not done:
            return 0.0
        pace = float(np.median([took / n for took, n in done]))
        return min(max(took for took, _ in done) * ETA, EPOCHS * pace)

    def _grown(self, view: SearchView, free: int, left: float) -> dict[int, int]:
        seen = [one for one in view.trials if one.epoch]
        if not seen or free <= 0:
            return {}
        top = max(seen, key=lambda one: _last(self.case, view, one.number))
        if top.epoch - self._changed.get(top.number, 0) < _COOLDOWN_REPORTS:
            return {}
        needs = self.case.market.supply.instances
        size = max(s for s, n in enumerate(needs) if n <= needs[top.held] + free)
        rate, pause = self.case.rate[top.number], self.case.market.pause_seconds
        if rate[size] * (left - pause) <= _GAIN * rate[top.held] * left:
            return {}
        self._changed[top.number] = top.epoch
        return {top.number: size}
