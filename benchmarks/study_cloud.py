"""A cloud with one study on it: boots, hand-overs, pauses, reclaims, barriers and the bill.

An arm is asked at every event what its trials should hold, and answers with `Orders`; the same
rules and the same random numbers hold for all arms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from study_cases import RUNG_TRIALS, Case

MEASURED_AFTER_SECONDS = 10.0
_DONE = 1e-6


@dataclass(frozen=True)
class Orders:
    """What an arm wants now.

    `sizes`: of each trial that is to hold something; one that is not named goes on as it is.
    `keep`: instances without a trial to hold on to. `order`: more of them. `wake_seconds`: when
    to be asked again at the latest.
    """

    sizes: Mapping[int, int]
    keep: int = 0
    order: int = 0
    wake_seconds: float = math.inf


@dataclass(frozen=True)
class TrialView:
    """A trial of the present rung that is not done: `held` is where it is or is on its way to."""

    trial: int
    work: float
    held: int | None
    ready_seconds: float
    paid_seconds: float
    is_changing: bool


@dataclass(frozen=True)
class FreeView:
    """An instance without a trial."""

    ready_seconds: float
    paid_seconds: float


@dataclass(frozen=True)
class View:
    """What an arm may know of its study."""

    now: float
    rung: int
    trials: tuple[TrialView, ...]
    free: tuple[FreeView, ...]
    measured: frozenset[tuple[int, int]]


class Arm(Protocol):
    """Decides what trials hold."""

    def decide(self, view: View) -> Orders:
        """What is wanted now."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What a study came to."""

    usd: float
    seconds: float
    resizes: int
    launches: int


@dataclass
class Instance:
    """One that is held; `reclaimed` is when the cloud will take it."""

    launched: float
    ready: float
    reclaimed: float


@dataclass
class Trial:
    """A trial on the cloud: `work` as of `since`, at `rate` from `begins` on."""

    number: int
    work: float
    size: int | None = None
    instances: list[Instance] = field(default_factory=list)
    begins: float = 0.0
    since: float = 0.0
    pending: int | None = None
    booting: list[Instance] = field(default_factory=list)
    switches: float = math.inf


class StudyCloud:
    """Runs one study of one arm to its end."""

    def __init__(self, case: Case, arm: Arm) -> None:
        self.case, self.arm = case, arm
        self.market = case.market
        self.supply = case.market.supply
        self.needs = [int(n) for n in self.supply.instances]
        self.rng = np.random.default_rng([case.seed, 7])
        self.now, self.usd, self.rung = 0.0, 0.0, 0
        self.resizes, self.launches = 0, 0
        self.free: list[Instance] = []
        self.trials: list[Trial] = []
        self.measured: set[tuple[int, int]] = set()
        self.wake = math.inf

    def run(self) -> Outcome:
        """The cost and the end of the study."""
        self._begin_rung(0)
        self._ask()
        while self.rung < len(RUNG_TRIALS):
            if not any(trial.size is not None for trial in self.trials) and not self.free:
                raise RuntimeError(f"{self.case.name}: nothing trains and nothing is ordered")
            self._advance(self._next_event())
            if self._happened():
                self._ask()
        return Outcome(self.usd, self.now, self.resizes, self.launches)

    def _begin_rung(self, rung: int) -> None:
        work = self.case.work[rung]
        self.trials = [Trial(trial, work) for trial in self.case.survivors[rung]]

    def _next_event(self) -> float:
        times = [self.wake]
        times += [one.reclaimed for one in self._instances()]
        for trial in self.trials:
            if trial.size is not None:
                times.append(self._end(trial))
                times.append(trial.switches)
                if (trial.number, trial.size) not in self.measured:
                    times.append(max(trial.begins, self.now) + MEASURED_AFTER_SECONDS)
        times += [one.ready for one in self.free if one.ready > self.now]
        return max(min(times), self.now)

    def _advance(self, until: float) -> None:
        for trial in self.trials:
            if trial.size is None:
                continue
            worked = max(until - max(trial.begins, trial.since), 0.0)
            trial.work -= worked * self._rate(trial)
            trial.since = until
        self.now = until

    def _happened(self) -> bool:
        """Carry out what is due; whether there is news for the arm."""
        news = self.now >= self.wake
        for trial in list(self.trials):
            if trial.size is not None and self.now >= trial.switches:
                self._switch(trial)
            news |= self._measure(trial)
            if trial.size is not None and trial.work <= _DONE:
                self._finish(trial)
                news = True
        for instance in [one for one in self._instances() if self.now >= one.reclaimed]:
            self._reclaim(instance)
            news = True
        if not self.trials:
            self.rung += 1
            if self.rung == len(RUNG_TRIALS):
                self._release(self.free)
                return False
            self._begin_rung(self.rung)
        return news

    def _measure(self, trial: Trial) -> bool:
        if trial.size is None or (trial.number, trial.size) in self.measured:
            return False
        if self.now < trial.begins + MEASURED_AFTER_SECONDS and trial.work > _DONE:
            return False
        self.measured.add((trial.number, trial.size))
        return True

    def _finish(self, trial: Trial) -> None:
        self.trials.remove(trial)
        self.free += trial.instances + trial.booting

    def _reclaim(self, instance: Instance) -> None:
        self._bill(instance)
        if instance in self.free:
            self.free.remove(instance)
            return
        trial = next(one for one in self.trials if instance in one.instances + one.booting)
        self.free += trial.booting
        trial.pending, trial.booting, trial.switches = None, [], math.inf
        if instance in self.free:
            self.free.remove(instance)
            return
        trial.instances.remove(instance)
        fits = [s for s, n in enumerate(self.needs) if n <= len(trial.instances)]
        if not fits:
            lost = self.rng.uniform(0.0, 2.0 * self.market.lost_seconds)
            whole = self.case.work[self.rung]
            trial.work = min(trial.work + lost * self._rate(trial), whole)
            trial.size = None
            return
        trial.size = fits[-1]
        trial.begins = self.now + self.market.pause_seconds
        self.free += trial.instances[self.needs[trial.size] :]
        trial.instances = trial.instances[: self.needs[trial.size]]

    def _ask(self) -> None:
        self._carry_out(self.arm.decide(self._view()))

    def _carry_out(self, orders: Orders) -> None:
        for trial in self.trials:
            wanted = orders.sizes.get(trial.number)
            if wanted is not None and wanted < 0:
                self._stop(trial)
        order = sorted(self.trials, key=lambda one: self._needed(one, orders.sizes))
        for trial in order:
            wanted = orders.sizes.get(trial.number)
            if wanted is not None and wanted >= 0:
                self._go_to(trial, wanted)
        self._paid_first()
        self._release(self.free[orders.keep :])
        self.free = self.free[: orders.keep]
        self.free += [self._launch() for _ in range(orders.order)]
        self.wake = self.now + max(orders.wake_seconds, 1.0)

    def _needed(self, trial: Trial, sizes: Mapping[int, int]) -> int:
        """Instances that a trial needs beyond what it holds: who gives comes first."""
        wanted = sizes.get(trial.number)
        return 0 if wanted is None or wanted < 0 else self.needs[wanted] - len(trial.instances)

    def _stop(self, trial: Trial) -> None:
        self.free += trial.instances + trial.booting
        trial.size, trial.pending, trial.switches = None, None, math.inf
        trial.instances, trial.booting = [], []

    def _go_to(self, trial: Trial, size: int) -> None:
        if size in (trial.pending, trial.size if trial.pending is None else None):
            return
        self.free += trial.booting
        trial.pending, trial.booting, trial.switches = None, [], math.inf
        if size == trial.size:
            return
        needed = self.needs[size] - len(trial.instances)
        if trial.size is None:
            self._start(trial, size, needed)
            return
        self.resizes += 1
        if needed <= 0:
            self.free += trial.instances[self.needs[size] :]
            trial.instances = trial.instances[: self.needs[size]]
            trial.size = size
            trial.begins = max(trial.begins, self.now) + self.market.pause_seconds
            return
        trial.booting = self._get(needed)
        trial.pending = size
        trial.switches = max(self.now, trial.begins, *(one.ready for one in trial.booting))

    def _start(self, trial: Trial, size: int, needed: int) -> None:
        taken = self._get(needed)
        trial.instances, trial.size = taken, size
        is_new = any(one.launched == self.now for one in taken)
        wait = self.market.start_seconds if is_new else self.market.handover_seconds
        trial.begins = max(self.now, *(one.ready for one in taken)) + wait
        trial.since = self.now

    def _switch(self, trial: Trial) -> None:
        assert trial.pending is not None
        trial.instances += trial.booting
        trial.size, trial.pending, trial.booting = trial.pending, None, []
        trial.begins, trial.switches = self.now + self.market.pause_seconds, math.inf

    def _get(self, count: int) -> list[Instance]:
        self._paid_first()
        taken, self.free = self.free[:count], self.free[count:]
        return taken + [self._launch() for _ in range(count - len(taken))]

    def _paid_first(self) -> None:
        """Of those that are ready the one that is paid for the longest, then who comes next."""
        self.free.sort(key=lambda one: (max(one.ready, self.now), -self._paid(one)))

    def _launch(self) -> Instance:
        self.launches += 1
        life = math.inf
        if self.market.reclaims_per_hour:
            life = float(self.rng.exponential(3600.0 / self.market.reclaims_per_hour))
        return Instance(self.now, self.now + self.market.boot_seconds, self.now + life)

    def _release(self, instances: list[Instance]) -> None:
        for instance in instances:
            self._bill(instance)

    def _bill(self, instance: Instance) -> None:
        seconds = max(self.now - instance.launched, self.market.minimum_billed_seconds)
        self.usd += seconds * self.supply.offers[0].usd_per_second

    def _instances(self) -> list[Instance]:
        held = [one for trial in self.trials for one in trial.instances + trial.booting]
        return held + self.free

    def _rate(self, trial: Trial) -> float:
        assert trial.size is not None
        return float(self.case.rate[trial.number, trial.size])

    def _end(self, trial: Trial) -> float:
        return max(trial.begins, self.now) + max(trial.work, 0.0) / self._rate(trial)

    def _view(self) -> View:
        trials = tuple(self._trial_view(trial) for trial in self.trials)
        free = tuple(
            FreeView(max(one.ready - self.now, 0.0), self._paid(one)) for one in self.free
        )
        return View(self.now, self.rung, trials, free, frozenset(self.measured))

    def _trial_view(self, trial: Trial) -> TrialView:
        ready = max(trial.begins - self.now, 0.0)
        work, held = trial.work, trial.size
        if trial.pending is not None:
            until = trial.switches - self.now
            work = max(work - max(until - ready, 0.0) * self._rate(trial), 1e-3)
            ready, held = until + self.market.pause_seconds, trial.pending
        instances = trial.instances + trial.booting
        paid = min((self._paid(one) for one in instances), default=0.0)
        return TrialView(
            trial.number, max(work, 1e-9), held, ready, paid, trial.pending is not None
        )

    def _paid(self, instance: Instance) -> float:
        return max(self.market.minimum_billed_seconds - (self.now - instance.launched), 0.0)
