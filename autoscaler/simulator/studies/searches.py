"""Searches of simulated studies: beginnings of trials, and promotions at rungs.

A rung is a number of epochs. Searches do not depend on instances or time, except for the order in
which trials reach their rungs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.domain.terms import LaterRung


@dataclass(frozen=True, slots=True)
class SynchronousHalving:
    """Rule by which one in `eta` trials of a rung goes on, after the last has arrived.

    `rungs` are the epochs at which trials are compared; a trial is complete at the last.
    """

    configurations: int
    eta: int
    rungs: tuple[float, ...]

    @property
    def trials(self) -> int:
        """Number of trials."""
        return self.configurations

    def sizes(self) -> tuple[int, ...]:
        """Return the number of trials in each rung."""
        sizes = [self.configurations]
        for _ in self.rungs[1:]:
            sizes.append(max(sizes[-1] // self.eta, 1))
        return tuple(sizes)


@dataclass(frozen=True, slots=True)
class AsynchronousHalving:
    """ASHA, stop-only: a trial goes on if it is among the best so far at its rung.

    Rungs are at `min_resource` epochs and at each `eta` times as many. At most `at_once` of
    `trials` run at a time; None: as many as get an instance. `brackets` gives, for Hyperband, the
    number of rungs that each trial skips; only trials of one bracket are compared. The first
    `bootstrap` trials at a rung do not go on.
    """

    trials: int
    min_resource: float
    eta: int
    at_once: int | None = None
    brackets: tuple[int, ...] = ()
    bootstrap: int = 0

    def bracket(self, trial: int) -> int:
        """Return the number of rungs that a trial skips."""
        return self.brackets[trial] if self.brackets else 0


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Counts of trials: `begun`, not ended (`held`), and waiting for an instance (`pending`)."""

    begun: int
    held: int
    pending: int


class Search(Protocol):
    """State of one search."""

    def to_begin(self, under_way: UnderWay) -> int:
        """Return the number of trials that begin now."""
        ...

    def first_goal(self, trial: int) -> float:
        """Return the epochs after which a new trial is first judged."""
        ...

    def judge(self, arrived: Mapping[int, float], under_way: int) -> Mapping[int, float | None]:
        """Return the next goals of trials at their goals, by the values reported there.

        None: prune the trial. Trials that are not named wait. `under_way` counts begun trials that
        have not arrived.
        """
        ...

    def later(self) -> tuple[LaterRung, ...]:
        """Return the rungs after the present one at which all trials wait for each other."""
        ...


class Synchronous:
    """Successive halving with barriers."""

    def __init__(self, rule: SynchronousHalving, maximize: bool) -> None:
        self._rule = rule
        self._sign = -1.0 if maximize else 1.0
        self._rung = 0

    def to_begin(self, under_way: UnderWay) -> int:
        """Return all trials at once."""
        return self._rule.configurations - under_way.begun

    def first_goal(self, trial: int) -> float:
        """Return the first rung."""
        return self._rule.rungs[0]

    def judge(self, arrived: Mapping[int, float], under_way: int) -> Mapping[int, float | None]:
        """Promote the best trials once all have arrived."""
        if under_way or not arrived:
            return {}
        self._rung += 1
        order = sorted(arrived, key=lambda trial: (self._sign * arrived[trial], trial))
        count = self._rule.sizes()[self._rung]
        goal = self._rule.rungs[self._rung]
        return {trial: goal if place < count else None for place, trial in enumerate(order)}

    def later(self) -> tuple[LaterRung, ...]:
        """Return the later rungs of the rule."""
        sizes, rungs = self._rule.sizes(), self._rule.rungs
        later_rungs = range(self._rung + 1, len(rungs))
        return tuple(LaterRung(sizes[rung], rungs[rung] - rungs[rung - 1]) for rung in later_rungs)


class Asynchronous:
    """Successive halving without barriers: trials are judged on arrival against earlier ones."""

    def __init__(self, rule: AsynchronousHalving, maximize: bool) -> None:
        self._rule = rule
        self._sign = -1.0 if maximize else 1.0
        self._passed: dict[int, int] = defaultdict(int)
        self._values: dict[tuple[int, int], list[float]] = defaultdict(list)

    def to_begin(self, under_way: UnderWay) -> int:
        """Return 1 while no trial waits for an instance; else 0."""
        most = self._rule.at_once
        has_room = most is None or under_way.held < most
        is_made = under_way.begun >= self._rule.trials
        return int(has_room and not under_way.pending and not is_made)

    def first_goal(self, trial: int) -> float:
        """Return the first rung that the trial does not skip."""
        return self._goal(trial, 0)

    def judge(self, arrived: Mapping[int, float], under_way: int) -> Mapping[int, float | None]:
        """Judge each trial by itself, in the order of the trials."""
        return {trial: self._judge(trial, value) for trial, value in sorted(arrived.items())}

    def later(self) -> tuple[LaterRung, ...]:
        """Return nothing, because there are no barriers."""
        return ()

    def _judge(self, trial: int, value: float) -> float | None:
        """Return the next goal or None, as Optuna's SuccessiveHalvingPruner does."""
        rung = self._passed[trial]
        values = self._values[self._rule.bracket(trial), rung]
        values.append(self._sign * value)
        if len(values) <= self._rule.bootstrap:
            return None
        if not _is_among_best(self._sign * value, values, self._rule.eta):
            return None
        self._passed[trial] = rung + 1
        return self._goal(trial, rung + 1)

    def _goal(self, trial: int, rung: int) -> float:
        factor: int = self._rule.eta ** (self._rule.bracket(trial) + rung)
        return self._rule.min_resource * factor


def _is_among_best(value: float, values: Sequence[float], eta: int) -> bool:
    """Return whether a value is in the best 1 / `eta`; of fewer than `eta`, only the best is."""
    return value <= sorted(values)[max(len(values) // eta, 1) - 1]


def search_of(rule: SynchronousHalving | AsynchronousHalving, maximize: bool) -> Search:
    """Return a new search by a rule."""
    if isinstance(rule, SynchronousHalving):
        return Synchronous(rule, maximize)
    return Asynchronous(rule, maximize)
