"""How a simulated study searches: which trials begin when, and which go on at a rung.

A rung is so many epochs. Nothing here knows of instances or time: who lives does not depend on
what trials are given, but for the order in which they come to their rungs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.domain.terms import LaterRung


@dataclass(frozen=True, slots=True)
class SynchronousHalving:
    """Of all `configurations` in a rung one in `eta` goes on, once the last has arrived.

    `rungs` are the epochs at which they are compared; the last is where a trial is complete.
    """

    configurations: int
    eta: int
    rungs: tuple[float, ...]

    @property
    def trials(self) -> int:
        """How many there are."""
        return self.configurations

    def sizes(self) -> tuple[int, ...]:
        """How many trials there are in each rung."""
        found = [self.configurations]
        for _ in self.rungs[1:]:
            found.append(max(found[-1] // self.eta, 1))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class AsynchronousHalving:
    """ASHA, stop-only: a trial goes on if it is among the best of those that came to its rung.

    Rungs are at `min_resource` epochs, and at each `eta` times as many. Of `trials` at most
    `at_once` are under way; None: as many as get an instance. Those of Hyperband are in
    `brackets`, which say how many rungs each trial is spared: only trials of one bracket are
    compared. None goes on from a rung that no more than `bootstrap` have come to.
    """

    trials: int
    min_resource: float
    eta: int
    at_once: int | None = None
    brackets: tuple[int, ...] = ()
    bootstrap: int = 0

    def bracket(self, trial: int) -> int:
        """How many rungs a trial is spared."""
        return self.brackets[trial] if self.brackets else 0


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What a study's trials are doing: how many begun, not ended, and waiting for an instance."""

    begun: int
    held: int
    pending: int


class Search(Protocol):
    """The state of one search."""

    def to_begin(self, under_way: UnderWay) -> int:
        """How many trials begin now."""
        ...

    def first_goal(self, trial: int) -> float:
        """The epochs after which a new trial is first judged."""
        ...

    def judge(self, arrived: Mapping[int, float], under_way: int) -> Mapping[int, float | None]:
        """The next goal of trials that have come to theirs, by what they reported there.

        None: it is pruned. One that is not named waits; `under_way` are those that have not
        arrived, of the trials that have begun.
        """
        ...

    def later(self) -> tuple[LaterRung, ...]:
        """The rungs after the present one, where all wait for each other."""
        ...


class Synchronous:
    """Halving with barriers."""

    def __init__(self, rule: SynchronousHalving, maximize: bool) -> None:
        self._rule = rule
        self._sign = -1.0 if maximize else 1.0
        self._rung = 0

    def to_begin(self, under_way: UnderWay) -> int:
        """All at once."""
        return self._rule.configurations - under_way.begun

    def first_goal(self, trial: int) -> float:
        """The first rung."""
        return self._rule.rungs[0]

    def judge(self, arrived: Mapping[int, float], under_way: int) -> Mapping[int, float | None]:
        """Those of least value go on, once all are here."""
        if under_way or not arrived:
            return {}
        self._rung += 1
        order = sorted(arrived, key=lambda trial: (self._sign * arrived[trial], trial))
        count = self._rule.sizes()[self._rung]
        goal = self._rule.rungs[self._rung]
        return {trial: goal if place < count else None for place, trial in enumerate(order)}

    def later(self) -> tuple[LaterRung, ...]:
        """As the rule has them."""
        sizes, rungs = self._rule.sizes(), self._rule.rungs
        places = range(self._rung + 1, len(rungs))
        return tuple(LaterRung(sizes[at], rungs[at] - rungs[at - 1]) for at in places)


class Asynchronous:
    """Halving without: each trial is judged as it arrives, by those that came before."""

    def __init__(self, rule: AsynchronousHalving, maximize: bool) -> None:
        self._rule = rule
        self._sign = -1.0 if maximize else 1.0
        self._passed: dict[int, int] = defaultdict(int)
        self._values: dict[tuple[int, int], list[float]] = defaultdict(list)

    def to_begin(self, under_way: UnderWay) -> int:
        """One, while none waits for an instance."""
        most = self._rule.at_once
        has_room = most is None or under_way.held < most
        is_made = under_way.begun >= self._rule.trials
        return int(has_room and not under_way.pending and not is_made)

    def first_goal(self, trial: int) -> float:
        """The first rung that it is not spared."""
        return self._goal(trial, 0)

    def judge(self, arrived: Mapping[int, float], under_way: int) -> Mapping[int, float | None]:
        """Each by itself, in the order of the trials."""
        return {trial: self._judge(trial, value) for trial, value in sorted(arrived.items())}

    def later(self) -> tuple[LaterRung, ...]:
        """None has a barrier."""
        return ()

    def _judge(self, trial: int, value: float) -> float | None:
        """As Optuna's SuccessiveHalvingPruner does."""
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
        passed: int = self._rule.eta ** (self._rule.bracket(trial) + rung)
        return self._rule.min_resource * passed


def _is_among_best(value: float, values: Sequence[float], eta: int) -> bool:
    """Of fewer than `eta` the best, for none can be resumed later."""
    return value <= sorted(values)[max(len(values) // eta, 1) - 1]


def search_of(rule: SynchronousHalving | AsynchronousHalving, maximize: bool) -> Search:
    """The search by a rule, not begun yet."""
    if isinstance(rule, SynchronousHalving):
        return Synchronous(rule, maximize)
    return Asynchronous(rule, maximize)
