"""A cloud with one asynchronous study on it: Optuna's own pruner on a virtual clock.

Trials train an epoch and report; what the pruner says is carried out at once, and the arm is asked
what is to train now. A study ends at its deadline or when its budget is spent. All arms of a case
have the same configurations in the same order, the same reports and the same speeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import optuna
from study_cases import (
    APPLICATIONS,
    MEASUREMENT_NOISE,
    PILOTS,
    REPORT_NOISE,
    Array,
    Market,
    Source,
    true_rates,
)
from study_cloud import FreeView, Orders, StudyCloud, Trial

EPOCHS = 52
LEAST_RUNG, ETA = 2, 3
RUNGS = (2, 6, 18)
_DONE = 1e-6
_CENT = 0.01


@dataclass(frozen=True, eq=False)
class SearchCase:
    """One asynchronous study as it really is: N configurations, in the order of the sampler.

    Attributes:
        name: task, application and seed; of the study too, on which Hyperband's brackets depend.
        rate: epochs a second on each size, (N, A).
        truth: what each is worth after each epoch, (N, E).
        values: what it reports, (N, E).
        features: hyper-parameters, (N, H).
        noise: what measurements of each rate are off by, in logarithms, (N, A).
        pilots: epochs a second of trials of an earlier study, as measured, (P, A).
        pilot_features: their hyper-parameters, (P, H).
        best: what the best of all configurations is worth at its end.
        median: what the median is.
        seed: of all that is drawn besides.
    """

    name: str
    market: Market
    rate: Array
    truth: Array
    values: Array
    features: Array
    noise: Array
    pilots: Array
    pilot_features: Array
    best: float
    median: float
    seed: int

    def regret(self, trial: int, epoch: int) -> float:
        """How far that model is from the best, over how far the median is; at most 1."""
        gap = self.best - self.truth[trial, epoch - 1]
        return min(float(gap / (self.best - self.median)), 1.0)


def search_cases(source: Source, market: Market, seeds: Sequence[int]) -> list[SearchCase]:
    """Every task with every application, once a seed."""
    return [
        search_case(source, market, (task, application), seed)
        for seed in seeds
        for task in range(len(source.tasks))
        for application in APPLICATIONS
    ]


def search_case(source: Source, market: Market, of: tuple[int, str], seed: int) -> SearchCase:
    """All configurations of a task, in an order that depends on the seed."""
    task, application = of
    rng = np.random.default_rng([seed, task, APPLICATIONS.index(application)])
    order = rng.permutation(source.features.shape[0])
    truth = source.accuracy[task][order]
    rate = true_rates(source, market, of, order)
    noise = rng.normal(0.0, MEASUREMENT_NOISE, rate.shape)
    values = truth + rng.normal(0.0, REPORT_NOISE, truth.shape)
    return SearchCase(
        name=f"{source.tasks[task]} x {application} #{seed}",
        market=market,
        rate=rate[PILOTS:],
        truth=truth[PILOTS:],
        values=values[PILOTS:],
        features=source.features[order[PILOTS:]],
        noise=noise[PILOTS:],
        pilots=(rate * np.exp(noise))[:PILOTS],
        pilot_features=source.features[order[:PILOTS]],
        best=float(truth[PILOTS:, -1].max()),
        median=float(np.median(truth[PILOTS:, -1])),
        seed=seed,
    )


@dataclass(frozen=True)
class SearchTerms:
    """What bounds the study, and its pruner: `asha` or `hyperband`, Optuna's own."""

    deadline_seconds: float
    budget_usd: float
    pruner: str = "asha"

    def make_pruner(self) -> optuna.pruners.BasePruner:
        """A new one."""
        if self.pruner == "hyperband":
            return optuna.pruners.HyperbandPruner(LEAST_RUNG, EPOCHS, ETA)
        return optuna.pruners.SuccessiveHalvingPruner(LEAST_RUNG, ETA)


@dataclass(frozen=True)
class SearchTrialView:
    """A trial that trains or is paused: `work` epochs from its next report, `epoch` behind it."""

    number: int
    epoch: int
    work: float
    held: int | None
    ready_seconds: float
    paid_seconds: float
    rests_seconds: float


@dataclass(frozen=True)
class Told:
    """One report of a trial, or its start on another size: when, how far it was, on what size."""

    seconds: float
    epoch: int
    size: int


@dataclass(frozen=True)
class SearchView:
    """What an arm may know: `reported` epochs of every trial, `fresh` ones in their order.

    `told` (trial -> what it has told, oldest first) has those that have ended, too.
    """

    now: float
    spent_usd: float
    trials: tuple[SearchTrialView, ...]
    free: tuple[FreeView, ...]
    fresh: tuple[int, ...]
    reported: dict[int, int]
    measured: frozenset[tuple[int, int]]
    told: Mapping[int, Sequence[Told]]


class SearchArm(Protocol):
    """Decides what trials hold, and which fresh ones begin."""

    def decide_search(self, view: SearchView) -> Orders:
        """What is wanted now; a fresh trial that is named begins."""
        ...


@dataclass(frozen=True, eq=False)
class SearchOutcome:
    """What a search came to.

    Attributes:
        seconds: when each better model was reported, rising.
        usd: what had been spent then.
        regret: of the model that was reported best so far.
        spent_usd: in all.
        started: trials that began.
        finished: of those, trained to their ends.
        cut: of those, stopped by the end of the study rather than by the pruner.
        leader_done: the trial of the best report was not cut, and some trial came to its end.
        resizes: of trials that trained.
    """

    seconds: Array
    usd: Array
    regret: Array
    spent_usd: float
    started: int
    finished: int
    cut: int
    leader_done: bool
    resizes: int

    @cached_property
    def last(self) -> float:
        """Regret at the end; 1 if nothing was reported."""
        return float(self.regret[-1]) if len(self.regret) else 1.0

    def at(self, where: Array, axis: Array) -> Array:
        """Regret at places of one of its axes: 1 before the first report."""
        places = np.searchsorted(axis, where, side="right")
        return np.concatenate([[1.0], self.regret])[places]


class _NoArm:
    """The arm of a rung, which a search has none of."""

    def decide(self, view: object) -> Orders:
        raise AssertionError("a search asks with decide_search")


class SearchCloud(StudyCloud):
    """Runs one asynchronous study of one arm until deadline or budget end it."""

    def __init__(self, case: SearchCase, arm: SearchArm, terms: SearchTerms) -> None:
        super().__init__(case, _NoArm())  # type: ignore[arg-type]
        self.search, self.searcher, self.terms = case, arm, terms
        self.study = optuna.create_study(
            direction="maximize", pruner=terms.make_pruner(), study_name=case.name
        )
        self.asked = [self.study.ask() for _ in range(len(case.rate))]
        self.waiting = list(range(len(case.rate)))
        self.epochs: dict[int, int] = {}
        self.resized: dict[int, float] = {}
        self.told: dict[int, list[Told]] = {}
        self.ended: set[int] = set()
        self.leader, self.best = -1, -math.inf
        self.curve: list[tuple[float, float, float]] = []

    def run_search(self) -> SearchOutcome:
        """The course of the study."""
        self._ask()
        while self.trials or self.free:
            until = min(self.terms.deadline_seconds, self._broke_at())
            self._advance(min(self._next_event(), until))
            news = self._happened()
            if self.now >= until:
                break
            if news:
                self._ask()
        return self._outcome()

    @property
    def spent_usd(self) -> float:
        """What is paid and what is owed for what is held, billing minima included."""
        least = self.market.minimum_billed_seconds
        seconds = sum(max(self.now - one.launched, least) for one in self._instances())
        return self.usd + seconds * self._price

    @property
    def _price(self) -> float:
        return float(self.supply.offers[0].usd_per_second)

    def _outcome(self) -> SearchOutcome:
        cut = {trial.number for trial in self.trials}
        spent = self.spent_usd
        course = np.array(self.curve).reshape(-1, 3)
        return SearchOutcome(
            course[:, 0],
            course[:, 1],
            course[:, 2],
            spent,
            len(self.search.rate) - len(self.waiting),
            len(self.ended),
            len(cut),
            bool(self.ended) and self.leader not in cut,
            self.resizes,
        )

    def _broke_at(self) -> float:
        """When the budget is spent if nothing changes."""
        left, at, billed = self.terms.budget_usd - self.spent_usd, self.now, 0
        for paid in sorted(self._paid(one) for one in self._instances()):
            costs = billed * self._price * (self.now + paid - at)
            if costs > left:
                break
            left, at, billed = left - costs, self.now + paid, billed + 1
        return at + max(left, 0.0) / (billed * self._price) if billed else math.inf

    def _happened(self) -> bool:
        news = self.now >= self.wake
        for trial in list(self.trials):
            if self.now >= trial.switches:
                self._switch(trial)
                self.resized[trial.number] = self.now
                self._note_size(trial)
            news |= self._measure(trial)
            if trial.size is not None and trial.work <= _DONE:
                news |= self._report(trial)
        return news

    def _report(self, trial: Trial) -> bool:
        """One epoch more; whether it is news for the arm."""
        number = trial.number
        epoch = self.epochs[number] = self.epochs[number] + 1
        value, asked = float(self.search.values[number, epoch - 1]), self.asked[number]
        self._note_size(trial)
        self.told[number].append(Told(self.now, epoch, trial.size or 0))
        if value > self.best:
            self.leader, self.best = number, value
            point = self.now, self.spent_usd, self.search.regret(number, epoch)
            self.curve.append(point)
        asked.report(value, epoch)
        if epoch == EPOCHS:
            self.study.tell(asked, value)
            self.ended.add(number)
        elif asked.should_prune():
            self.study.tell(asked, state=optuna.trial.TrialState.PRUNED)
        else:
            trial.work = 1.0
            return epoch in RUNGS
        self._finish(trial)
        return True

    def _ask(self) -> None:
        orders = self.searcher.decide_search(self._search_view())
        for number in [one for one in self.waiting if one in orders.sizes]:
            self.trials.append(Trial(number, 1.0))
            self.epochs[number] = 0
        before = self.resizes
        sizes = {trial.number: trial.size for trial in self.trials}
        self._carry_out(orders)
        if self.resizes > before:
            for trial in self.trials:
                if sizes[trial.number] not in (None, trial.size):
                    self.resized[trial.number] = self.now
        begun = {
            trial.number
            for trial in self.trials
            if trial.size is not None or trial.number not in self.waiting
        }
        for trial in self.trials:
            if trial.number not in begun:
                del self.epochs[trial.number]
        self.trials = [trial for trial in self.trials if trial.number in begun]
        for trial in self.trials:
            self._note_size(trial)
        self.waiting = [one for one in self.waiting if one not in begun]

    def _note_size(self, trial: Trial) -> None:
        told = self.told.setdefault(trial.number, [])
        if trial.size is not None and (not told or told[-1].size != trial.size):
            told.append(Told(trial.begins, self.epochs[trial.number], trial.size))

    def _go_to(self, trial: Trial, size: int) -> None:
        """As of any cloud, but nothing is launched whose least bill the budget does not bear."""
        new = self.needs[size] - len(trial.instances) - len(trial.booting) - len(self.free)
        least = max(self.market.minimum_billed_seconds, 1.0) * self._price
        if new > 0 and self.spent_usd + new * least > self.terms.budget_usd + _CENT:
            return
        super()._go_to(trial, size)

    def _search_view(self) -> SearchView:
        trials = []
        for trial in self.trials:
            seen = self._trial_view(trial)
            trials.append(
                SearchTrialView(
                    trial.number,
                    self.epochs[trial.number],
                    seen.work,
                    seen.held,
                    seen.ready_seconds,
                    seen.paid_seconds,
                    0.0 if seen.is_changing else self.now - self.resized.get(trial.number, -1e9),
                )
            )
        free = tuple(
            FreeView(max(one.ready - self.now, 0.0), self._paid(one)) for one in self.free
        )
        return SearchView(
            self.now,
            self.spent_usd,
            tuple(trials),
            free,
            tuple(self.waiting),
            dict(self.epochs),
            frozenset(self.measured),
            self.told,
        )
