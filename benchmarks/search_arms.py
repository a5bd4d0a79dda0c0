"""Arms of an asynchronous study: plain trials, Ray Tune's rules, HyperSched's, and ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from search_cloud import EPOCHS, ETA, RUNGS, SearchCase, SearchTerms, SearchTrialView, SearchView
from study_cases import MEDIAN_SECONDS, Array
from study_cloud import Orders

from autoscaler.economics.studies.async_trials import (
    AsyncAction,
    AsyncTerms,
    AsyncTrial,
)
from autoscaler.economics.studies.breadth import plan_breadth
from autoscaler.economics.studies.curves import Curve, Study, forecast
from autoscaler.economics.studies.rung import FreedInstances
from autoscaler.economics.studies.siblings import (
    SpeedMeasurements,
    StudySizes,
    hyper_parameter_features,
    sibling_speeds,
)

DRAWS = 64
HORIZONS = np.array([1.0, *RUNGS, 32.0, EPOCHS])
# How many of the trials measured last teach how fast others are.
_TEACHERS = 24
# So many fresh trials' speeds are learnt at a time.
_AHEAD = 32
_FRESH = -1
# What is known of curves and speeds is renewed so often, or so many times until the deadline.
RENEWED_SECONDS = 120.0
_RENEWALS = 60.0
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


def _later(rung: int) -> tuple[float, ...]:
    """Epochs from each decision after this one to the next."""
    return tuple(float(b - a) for a, b in pairwise(RUNGS) if a >= rung)


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


@dataclass(eq=False)
class Breadth:
    """Ours: `plan_breadth`, with speeds from siblings and values from the curve model."""

    case: SearchCase
    terms: SearchTerms
    _known_at: float = -math.inf
    _rates: dict[int, Array] = field(default_factory=dict)
    _ahead: dict[int, Array] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def decide_search(self, view: SearchView) -> Orders:
        """The plan of the product, as orders."""
        supply = self.case.market.supply
        most = self.case.market.most_devices // self.case.market.devices
        fresh = view.fresh[: max(most - len(view.trials), 0)]
        self._learn(view, [one.number for one in view.trials], fresh)
        trials = [self._trial(view, one) for one in view.trials]
        trials += [self._fresh(one) for one in fresh]
        plan = plan_breadth(trials, supply, self._terms(view))
        self.reasons += [
            f"{view.now:7.0f} s  {one.reason}"
            for one in plan.decisions
            if one.action in (AsyncAction.GROW, AsyncAction.WAIT, AsyncAction.PAUSE)
        ]
        sizes = {
            int(one.trial): supply.sizes.index(one.size)
            for one in plan.decisions
            if one.size is not None and one.action is not AsyncAction.HOLD
        }
        sizes |= {int(o.trial): -1 for o in plan.decisions if o.action is AsyncAction.PAUSE}
        released = sum(count for _, count in plan.release)
        needed = supply.instances
        held = {o.number: 0 if o.held is None else int(needed[o.held]) for o in view.trials}
        paused = sum(held[t] for t, s in sizes.items() if s < 0)
        taken = sum(max(int(needed[s]) - held.get(t, 0), 0) for t, s in sizes.items() if s >= 0)
        keep = max(len(view.free) + paused - released - taken, 0)
        wakes = [one.paid_seconds for one in view.free if one.paid_seconds > 0]
        return Orders(sizes, keep=keep, wake_seconds=min([RENEWED_SECONDS, *wakes]))

    def _terms(self, view: SearchView) -> AsyncTerms:
        freed = tuple(
            FreedInstances("node", 1, one.paid_seconds, one.ready_seconds) for one in view.free
        )
        best = [self.case.values[t, :n].max() for t, n in view.reported.items() if n]
        return AsyncTerms(
            best=float(max(best, default=-math.inf)),
            deadline_seconds=self.terms.deadline_seconds - view.now,
            budget_usd=self.terms.budget_usd - view.spent_usd,
            freed=freed,
            survival=self._survival(view),
        )

    def _survival(self, view: SearchView) -> float:
        """Of the decisions so far, how many trials passed."""
        trains = {one.number for one in view.trials}
        went_on = [(n, t in trains or n == EPOCHS) for t, n in view.reported.items()]
        asked = sum(n >= rung for n, _ in went_on for rung in RUNGS)
        passed = sum(n > rung or (n == rung and on) for n, on in went_on for rung in RUNGS)
        return (passed + 1.0) / (asked + 2.0)

    def _trial(self, view: SearchView, one: SearchTrialView) -> AsyncTrial:
        ahead = one.work - 1.0
        rung = next((rung for rung in (*RUNGS, EPOCHS) if rung > one.epoch), EPOCHS)
        values, works = self._values(one.number, one.epoch)
        return AsyncTrial(
            str(one.number),
            self._rates[one.number],
            rung - one.epoch + ahead,
            EPOCHS - one.epoch + ahead,
            values,
            works,
            one.held,
            one.rests_seconds,
            sum(rung <= one.epoch for rung in RUNGS),
            _later(rung),
            one.paid_seconds,
        )

    def _fresh(self, number: int) -> AsyncTrial:
        values, works = self._values(number, 0)
        return AsyncTrial(
            str(number),
            self._rates[number],
            RUNGS[0],
            EPOCHS,
            values,
            works,
            later=_later(RUNGS[0]),
        )

    def _values(self, number: int, epoch: int) -> tuple[Array, Array]:
        values = self._ahead.get(number, self._ahead[_FRESH])
        return values, np.maximum(HORIZONS - epoch, 0.0)

    def _learn(self, view: SearchView, begun: list[int], fresh: tuple[int, ...]) -> None:
        """Speeds and curves of those asked for, renewed now and then; fresh ones are alike."""
        renews = max(RENEWED_SECONDS, self.terms.deadline_seconds / _RENEWALS)
        is_known = all(one in self._rates for one in (*begun, *fresh))
        if is_known and view.now < self._known_at + renews:
            return
        self._known_at = view.now
        self._learn_speeds(view, begun + list(view.fresh[:_AHEAD]))
        shown = [*sorted({t for t, n in view.reported.items() if n} | set(begun)), _FRESH]
        curves = [self._curve(t, view.reported.get(t, 0)) for t in shown]
        study = Study(curves, maximize=True, best=100.0)
        asked = [*begun, _FRESH]
        places = [shown.index(t) for t in asked]
        found = forecast(study, places, HORIZONS, DRAWS, self.case.seed)
        self._ahead = dict(zip(asked, found.draws, strict=True))

    def _curve(self, trial: int, reports: int) -> Curve:
        return Curve(np.arange(1.0, reports + 1), self.case.values[trial, :reports])

    def _learn_speeds(self, view: SearchView, asked: list[int]) -> None:
        known = sorted(view.measured)
        late = sorted({t for t, _ in known})[-_TEACHERS:]
        rows = {t: row for row, t in enumerate(sorted({*asked, *late}))}
        kept = [(t, s) for t, s in known if t in rows]
        case = self.case
        trial = [rows[t] for t, _ in kept]
        size = [s for _, s in kept]
        rate = [math.log(case.rate[t, s]) + case.noise[t, s] for t, s in kept]
        for pilot, speeds in enumerate(case.pilots):
            possible = np.flatnonzero(speeds > 0).tolist()
            trial += [len(rows) + pilot] * len(possible)
            size += possible
            rate += np.log(speeds[possible]).tolist()
        every = np.vstack([case.features[list(rows)], case.pilot_features])
        seen = SpeedMeasurements(
            np.array(trial, dtype=np.int64), np.array(size, dtype=np.int64), np.array(rate)
        )
        model = sibling_speeds(hyper_parameter_features(every), self._sizes(), seen)
        median = np.median(model.draws(16, case.seed), axis=0)
        self._rates = {t: median[row] for t, row in rows.items()}

    def _sizes(self) -> StudySizes:
        devices = np.array([float(one.devices) for one in self.case.market.supply.sizes])
        typical = np.log(EPOCHS / MEDIAN_SECONDS)
        typical = typical + np.log(devices / (1.0 + 0.05 * (devices - 1.0)))
        return StudySizes(devices, np.zeros(len(devices), dtype=np.int64), typical)
