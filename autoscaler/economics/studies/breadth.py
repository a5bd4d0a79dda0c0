"""Asynchronous trials: breadth first, and growth only where it is not money wasted.

Without a barrier nobody waits for a slow trial, so nothing but the deadline, or what is paid for
already, can make more than the smallest size pay: $ per unit of work only rise with size. An index
of expected improvement per dollar that decides everything was tried and lost to plain trials of
one instance. What is left are guards, each from a failure of that:

G1  every trial at the smallest size, every other instance to the pruner's next trial;
G2  a trial grows only by what is freed or paid for, or if the deadline binds: it can't reach its
    next rung by then as it is; and only if that improves more per dollar than a fresh trial;
G3  no fresh trial that can't reach its first rung by the deadline;
G4  nothing is stopped on a prediction: who lives is the pruner's business;
G5  what the likely finalists need to their ends is kept of the budget;
G6  a resize must save a tenth of what is left, and rests for a while after the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.rung import StudySupply
from autoscaler.economics.wording import duration, money
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class AsyncTrial:
    """A trial that trains, or a fresh one that the sampler has ready.

    Attributes:
        id: its name in reasons.
        goodput: units of work a second on every size, (A,); 0: can't run there.
        to_rung: work to its next decision.
        to_end: work to the end of its training.
        values: what it will be worth after each of P amounts of work from now, in K draws,
            (K, P), better is more; what the curve model predicts.
        works: those amounts, rising, (P,).
        held: the size it holds; None: fresh, or paused.
        rests_seconds: since its last resize; inf if there was none.
    """

    id: str
    goodput: FloatArray
    to_rung: float
    to_end: float
    values: FloatArray
    works: FloatArray
    held: int | None = None
    rests_seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class AsyncTerms:
    """What bounds an asynchronous study from now on.

    Attributes:
        best: the best value so far; -inf if there is none.
        deadline_seconds: None: there is none.
        budget_usd: what is left of it; None: there is none.
        freed: free instances that may be handed on, by offer id, as pairs.
        paid: of those, how many are paid for in any case (reserved, or in their billing minimum).
        finalists: for how many of the best the budget is kept (G5).
        hysteresis: the least share of the time left that a resize must save (G6).
        cooldown_seconds: the least time between two resizes of a trial (G6).
    """

    best: float
    deadline_seconds: float | None = None
    budget_usd: float | None = None
    freed: tuple[tuple[str, int], ...] = ()
    paid: tuple[tuple[str, int], ...] = ()
    finalists: int = 1
    hysteresis: float = 0.1
    cooldown_seconds: float = 300.0


class AsyncAction(StrEnum):
    """What becomes of a trial."""

    START = "start"
    HOLD = "hold"
    GROW = "grow"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class AsyncDecision:
    """One trial's part and the guard that decided it."""

    trial: str
    action: AsyncAction
    size: Allocation | None
    reason: str


@dataclass(frozen=True, slots=True)
class BreadthPlan:
    """Decisions in the order given, what to release, and what is kept of the budget for finalists.

    What is free and paid for is not released: keeping it costs nothing.
    """

    decisions: tuple[AsyncDecision, ...]
    release: tuple[tuple[str, int], ...]
    reserve_usd: float


def plan_breadth(
    trials: Sequence[AsyncTrial], supply: StudySupply, terms: AsyncTerms
) -> BreadthPlan:
    """What each trial holds until the next news. Fresh trials come in the sampler's order."""
    desk = _Desk(supply, terms, trials)
    decisions: dict[str, AsyncDecision] = {}
    for trial in trials:
        if trial.held is not None:
            decisions[trial.id] = _hold(trial, supply)
    by_promise = sorted(
        (one for one in trials if one.held is not None), key=lambda one: -desk.improvement(one)
    )
    if terms.deadline_seconds is not None:
        for trial in by_promise:
            decisions[trial.id] = desk.grown_to_be_in_time(trial) or decisions[trial.id]
    for trial in trials:
        if trial.held is None:
            decisions[trial.id] = desk.started(trial)
    for trial in by_promise:
        if decisions[trial.id].action is AsyncAction.HOLD:
            decisions[trial.id] = desk.grown_for_nothing(trial) or decisions[trial.id]
    unpaid = {offer: count - desk.paid.get(offer, 0) for offer, count in desk.free.items()}
    release = tuple((offer, count) for offer, count in sorted(unpaid.items()) if count > 0)
    return BreadthPlan(tuple(decisions[one.id] for one in trials), release, desk.reserve_usd)


def expected_improvement(values: FloatArray, best: float) -> float:
    """``E[(Y - best)^+]`` over draws; of a study without a best the spread of Y."""
    if not np.isfinite(best):
        best = float(np.min(values))
    return float(np.maximum(values - best, 0.0).mean())


def reachable_values(trial: AsyncTrial, work: float) -> FloatArray:
    """What the trial is worth after so much work, at most to its end, in each draw, (K,)."""
    work = min(work, trial.to_end)
    return np.array([np.interp(work, trial.works, row) for row in trial.values])


class _Desk:
    """What is left to give: free instances, room under the limits, money beyond the reserve."""

    def __init__(
        self, supply: StudySupply, terms: AsyncTerms, trials: Sequence[AsyncTrial]
    ) -> None:
        self.supply, self.terms = supply, terms
        self.free = dict(terms.freed)
        self.paid = dict(terms.paid)
        self.room = Room(supply)
        for offer, count in self.free.items():
            self.room.take(supply.place_of[offer], count)
        for trial in trials:
            if trial.held is not None:
                held = trial.held
                self.room.take(int(supply.offer_of[held]), int(supply.instances[held]))
        self.reserve_usd = _reserve(trials, supply, terms)
        self.left_usd = float("inf")
        if terms.budget_usd is not None:
            self.left_usd = terms.budget_usd - self.reserve_usd
            self.left_usd -= sum(_usd_to_rung(t, supply) for t in trials if t.held is not None)
        fresh = [_per_dollar(one, supply, terms) for one in trials if one.held is None]
        self.fresh_per_dollar = max(fresh, default=0.0)

    def improvement(self, trial: AsyncTrial) -> float:
        """What is expected of it beyond the best, by the end or the deadline."""
        return _improvement(trial, _size(trial, self.supply), self.terms, 0.0)

    def grown_to_be_in_time(self, trial: AsyncTrial) -> AsyncDecision | None:
        """G2: to the smallest size at which it reaches its next rung, if it doesn't as it is."""
        deadline, held = self.terms.deadline_seconds, _size(trial, self.supply)
        assert deadline is not None
        if trial.to_rung / trial.goodput[held] <= deadline or self._rests(trial):
            return None
        for size in _by_price(self.supply):
            change = self._change_seconds(trial, size)
            if (
                trial.goodput[size] <= 0
                or self.supply.offer_of[size] != self.supply.offer_of[held]
            ):
                continue
            if change + trial.to_rung / trial.goodput[size] > deadline or not self._gains(
                trial, size, change
            ):
                continue
            if not self._pays(trial, size, change) or not self._take(trial, size):
                continue
            return self._grow(
                trial,
                size,
                f"at {self.supply.sizes[held]} it would not reach "
                f"its next rung within {duration(deadline)} (G2)",
            )
        return None

    def grown_for_nothing(self, trial: AsyncTrial) -> AsyncDecision | None:
        """G2: by what is paid for already and nobody else takes."""
        held = _size(trial, self.supply)
        if self._rests(trial):
            return None
        best = None
        for size in _by_price(self.supply):
            more = int(self.supply.instances[size]) - int(self.supply.instances[held])
            offer = self.supply.sizes[size].offer
            if more <= 0 or offer != self.supply.sizes[held].offer:
                continue
            if min(self.paid.get(offer, 0), self.free.get(offer, 0)) < more:
                continue
            if self._gains(trial, size, self.supply.switching.pause_seconds):
                best = size
        if best is None or not self._take(trial, best):
            return None
        return self._grow(trial, best, "what it grows by is paid for already (G2)")

    def started(self, trial: AsyncTrial) -> AsyncDecision:
        """G1: at the smallest size, if it can be of use (G3) and the money is there (G5)."""
        size = _size(trial, self.supply)
        wait = self._start_seconds(size)
        seconds = wait + trial.to_rung / trial.goodput[size]
        deadline = self.terms.deadline_seconds
        if deadline is not None and seconds > deadline:
            return _waits(
                trial,
                f"its first rung takes {duration(seconds)}, the deadline is in "
                f"{duration(deadline)} (G3)",
            )
        usd = seconds * float(self.supply.usd_per_second[size])
        if usd > self.left_usd:
            return _waits(
                trial,
                f"its first rung costs {money(usd)}; beyond the "
                f"{money(self.reserve_usd)} for finalists "
                f"{money(max(self.left_usd, 0.0))} is left (G5)",
            )
        if not self._take(trial, size):
            return _waits(trial, "the limits leave no room for one more")
        self.left_usd -= usd
        chosen = self.supply.sizes[size]
        return AsyncDecision(
            trial.id,
            AsyncAction.START,
            chosen,
            f"start {trial.id} on {chosen}: smallest size, breadth first (G1)",
        )

    def _grow(self, trial: AsyncTrial, size: int, why: str) -> AsyncDecision:
        held, chosen = self.supply.sizes[_size(trial, self.supply)], self.supply.sizes[size]
        reason = f"grow {trial.id} {held.instances} -> {chosen}: {why}"
        return AsyncDecision(trial.id, AsyncAction.GROW, chosen, reason)

    def _rests(self, trial: AsyncTrial) -> bool:
        return trial.rests_seconds < self.terms.cooldown_seconds

    def _gains(self, trial: AsyncTrial, size: int, change_seconds: float) -> bool:
        """G6: the resize saves a tenth of the time to the end."""
        now = trial.to_end / trial.goodput[_size(trial, self.supply)]
        if trial.goodput[size] <= 0:
            return False
        then = change_seconds + trial.to_end / trial.goodput[size]
        return bool(then < now * (1.0 - self.terms.hysteresis))

    def _pays(self, trial: AsyncTrial, size: int, change_seconds: float) -> bool:
        """G2: it improves more per dollar added than a fresh trial; G5: the money is there."""
        held = _size(trial, self.supply)
        gain = _improvement(trial, size, self.terms, change_seconds)
        gain -= _improvement(trial, held, self.terms, 0.0)
        seconds = change_seconds + trial.to_rung / trial.goodput[size]
        now = trial.to_rung / trial.goodput[held] * float(self.supply.usd_per_second[held])
        usd = seconds * float(self.supply.usd_per_second[size]) - now
        if usd > self.left_usd:
            return False
        return bool(gain > max(usd, 0.0) * self.fresh_per_dollar)

    def _change_seconds(self, trial: AsyncTrial, size: int) -> float:
        more = int(self.supply.instances[size])
        more -= int(self.supply.instances[_size(trial, self.supply)])
        ready = self.free.get(self.supply.sizes[size].offer, 0) >= more
        boot = 0.0 if ready else float(self.supply.boot_seconds[size])
        return boot + self.supply.switching.pause_seconds

    def _start_seconds(self, size: int) -> float:
        if self.free.get(self.supply.sizes[size].offer, 0) >= self.supply.instances[size]:
            return self.supply.switching.handover_seconds
        return float(self.supply.boot_seconds[size]) + self.supply.switching.start_seconds

    def _take(self, trial: AsyncTrial, size: int) -> bool:
        """Take what a trial needs beyond what it holds, free instances first."""
        chosen = self.supply.sizes[size]
        held = 0 if trial.held is None else int(self.supply.instances[trial.held])
        needed = chosen.instances - held
        free = min(self.free.get(chosen.offer, 0), max(needed, 0))
        new = needed - free
        offer = int(self.supply.offer_of[size])
        if not self.room.bears(offer, new):
            return False
        self.free[chosen.offer] = self.free.get(chosen.offer, 0) - free
        self.paid[chosen.offer] = max(self.paid.get(chosen.offer, 0) - free, 0)
        self.room.take(offer, new)
        return True


def _hold(trial: AsyncTrial, supply: StudySupply) -> AsyncDecision:
    size = supply.sizes[_size(trial, supply)]
    reason = f"hold {trial.id} at {size}: only its pruner stops it (G4)"
    return AsyncDecision(trial.id, AsyncAction.HOLD, size, reason)


def _waits(trial: AsyncTrial, why: str) -> AsyncDecision:
    return AsyncDecision(trial.id, AsyncAction.WAIT, None, f"wait {trial.id}: {why}")


def _size(trial: AsyncTrial, supply: StudySupply) -> int:
    """What it holds, or would begin on: the size of least $ per progress."""
    if trial.held is not None:
        return trial.held
    rate = np.maximum(trial.goodput, 1e-300)
    return int((supply.usd_per_second / rate).argmin())


def _by_price(supply: StudySupply) -> list[int]:
    order: list[int] = np.argsort(supply.usd_per_second, kind="stable").tolist()
    return order


def _improvement(trial: AsyncTrial, size: int, terms: AsyncTerms, change_seconds: float) -> float:
    """Expected improvement that is reachable by the deadline on a size."""
    work = trial.to_end
    if terms.deadline_seconds is not None:
        trains = max(terms.deadline_seconds - change_seconds, 0.0)
        work = min(work, trains * float(trial.goodput[size]))
    return expected_improvement(reachable_values(trial, work), terms.best)


def _per_dollar(trial: AsyncTrial, supply: StudySupply, terms: AsyncTerms) -> float:
    """What a fresh trial improves per dollar to its end, or the deadline."""
    size = _size(replace(trial, held=None), supply)
    starts = float(supply.boot_seconds[size]) + supply.switching.start_seconds
    seconds = starts + trial.to_end / float(trial.goodput[size])
    if terms.deadline_seconds is not None:
        seconds = min(seconds, terms.deadline_seconds)
    usd = seconds * float(supply.usd_per_second[size])
    return _improvement(trial, size, terms, starts) / max(usd, 1e-12)


def _usd_to_rung(trial: AsyncTrial, supply: StudySupply) -> float:
    size = _size(trial, supply)
    return trial.to_rung / float(trial.goodput[size]) * float(supply.usd_per_second[size])


def _reserve(trials: Sequence[AsyncTrial], supply: StudySupply, terms: AsyncTerms) -> float:
    """G5: from their next decision to their ends, for the trials most likely to be the best."""
    if terms.budget_usd is None:
        return 0.0
    held = [trial for trial in trials if trial.held is not None]
    held.sort(key=lambda one: -_improvement(one, _size(one, supply), terms, 0.0))
    costs = []
    for trial in held[: terms.finalists]:
        size = _size(trial, supply)
        after = max(trial.to_end - trial.to_rung, 0.0) / float(trial.goodput[size])
        costs.append(after * float(supply.usd_per_second[size]))
    return sum(costs)
