"""One way to bring all trials of a rung to its barrier in time, for the least money found.

A trial that trains takes the cheapest size that is there in time. One that waits takes over what
another has done with, if there is time for both, or instances that are free, or new ones: longest
first, each where it adds least to the bill. Least total cost is bin packing, so this is a rule of
thumb; on small rungs the tests hold it against every possibility.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from autoscaler.economics.studies.courses import (
    NEVER,
    Courses,
    running_courses,
    waiting_courses,
    work_seconds,
)
from autoscaler.economics.studies.rung import FreedInstances, Rung, StudySupply
from autoscaler.economics.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

_ROUNDING = 1e-9


class Beginning(Enum):
    """How a trial comes to what it holds."""

    HOLDS = "holds"
    RESIZES = "resizes"
    FREED = "freed"
    NEW = "new"
    AFTER = "after"


class Place(NamedTuple):
    """Where a trial is put: a size, how it comes to it, and after whom (index) on the same."""

    size: int
    beginning: Beginning
    after: int | None = None


@dataclass(slots=True)
class _Lane:
    """Instances of one size and who trains on them, one after the other."""

    size: int
    end_seconds: float
    last: int
    spare_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where each trial of the rung is put, what that costs (K,), when each is done (K, N).

    `unused` are the free instances of each offer that nobody takes.
    """

    places: tuple[Place, ...]
    usd: FloatArray
    ends: FloatArray
    unused: dict[str, int]

    @property
    def seconds(self) -> FloatArray:
        """When the barrier is reached, (K,)."""
        latest: FloatArray = self.ends.max(axis=1)
        return latest


@dataclass(frozen=True, slots=True, eq=False)
class PackingTask:
    """A rung made ready to be packed at many barriers.

    `running` and `waiting` are places in the rung, the rows of the courses: of those that train,
    growing by instances that boot or that are ready, and of those that wait, longest first.
    `alone` are the seconds of each trial's work on each size without any change, (K, N, A).
    """

    rung: Rung
    supply: StudySupply
    running: IntArray
    waiting: IntArray
    booting: Courses
    ready: Courses
    idle: Courses
    alone: FloatArray

    @property
    def draws(self) -> int:
        """K."""
        return int(self.rung.trials[0].goodput.shape[0])


def packing_task(rung: Rung, supply: StudySupply, caution: float) -> PackingTask:
    """All that packings at different barriers have in common."""
    holds = [index for index, trial in enumerate(rung.trials) if trial.held is not None]
    waits = [index for index, trial in enumerate(rung.trials) if trial.held is None]
    running = tuple(rung.trials[index] for index in holds)
    idle = waiting_courses(tuple(rung.trials[index] for index in waits), supply, caution)
    order = np.argsort(-idle.cautious.min(axis=1), kind="stable")
    idle = Courses(idle.seconds[:, order], idle.cautious[order], idle.usd[order])
    return PackingTask(
        rung,
        supply,
        np.array(holds, dtype=np.int64),
        np.array(waits, dtype=np.int64)[order],
        running_courses(running, supply, caution, freed=False),
        running_courses(running, supply, caution, freed=True),
        idle,
        np.stack([work_seconds(trial, supply) for trial in rung.trials], axis=1),
    )


def pack(task: PackingTask, barrier_seconds: float) -> Packing | None:
    """A packing that is done by then, cautiously; None where none was found."""
    packer = _Packer(task, barrier_seconds)
    if not packer.put_running() or not packer.put_waiting():
        return None
    return packer.packing()


def keep(task: PackingTask) -> Packing | None:
    """All that trains goes on as it is; None if some wait."""
    if len(task.waiting):
        return None
    packer = _Packer(task, NEVER)
    for row, index in enumerate(task.running.tolist()):
        held = task.rung.trials[index].held
        packer.put_on(row, index, int(held or 0), is_ready=False)
    packer.barrier = max(lane.end_seconds for lane in packer.lanes)
    return packer.packing()


class _Packer:
    """Puts one trial after the other; knows what is left of limits and of free instances."""

    def __init__(self, task: PackingTask, barrier_seconds: float) -> None:
        self.task = task
        self.supply = task.supply
        self.barrier = barrier_seconds * (1.0 + _ROUNDING)
        self.places: dict[int, Place] = {}
        self.ends: dict[int, FloatArray] = {}
        self.begins: dict[int, FloatArray] = {}
        self.lanes: list[_Lane] = []
        self.usd = np.zeros(task.draws)
        self.free: dict[str, list[FreedInstances]] = {}
        self.used = np.zeros(len(self.supply.limits))
        for freed in sorted(
            task.rung.freed, key=lambda one: (one.ready_seconds, one.paid_seconds)
        ):
            self.free.setdefault(freed.offer, []).extend(
                [FreedInstances(freed.offer, 1, freed.paid_seconds, freed.ready_seconds)]
                * freed.instances
            )
            self._use(self._offer(freed.offer), freed.instances)
        for index in task.running.tolist():
            held = int(task.rung.trials[index].held or 0)
            self._use(int(self.supply.offer_of[held]), int(self.supply.instances[held]))

    def put_running(self) -> bool:
        """Each trial that trains on the cheapest size in time; whether there is one for all."""
        booting, ready = self.task.booting, self.task.ready
        for row in np.argsort(-booting.usd.min(axis=1), kind="stable").tolist():
            index = int(self.task.running[row])
            late = booting.cautious[row] > self.barrier
            choices = [(usd, size, False) for size, usd in _allowed(booting.usd[row], late)]
            if self.free:
                late = ready.cautious[row] > self.barrier
                choices += [(usd, size, True) for size, usd in _allowed(ready.usd[row], late)]
            for _, size, is_ready in sorted(choices):
                if self._can_have(index, size, is_ready):
                    self.put_on(row, index, size, is_ready)
                    break
            else:
                return False
        return True

    def put_on(self, row: int, index: int, size: int, is_ready: bool) -> None:
        """A trial that trains goes on, on this size."""
        courses = self.task.ready if is_ready else self.task.booting
        held = int(self.task.rung.trials[index].held or 0)
        more = self._more(held, size)
        offer = int(self.supply.offer_of[size])
        if is_ready:
            for _ in range(more):
                self._take_free(self.supply.offers[offer].id)
        else:
            self._use(offer, more)
        self._use(int(self.supply.offer_of[held]), -self._more(size, held))
        beginning = Beginning.HOLDS if size == held else Beginning.RESIZES
        self.places[index] = Place(size, beginning)
        self.ends[index] = courses.seconds[:, row, size]
        price = float(self.supply.usd_per_second[size])
        self._pay(float(courses.usd[row, size]), price, self.ends[index])
        ready = self.task.rung.trials[index].ready_seconds
        self.begins[index] = np.full(self.task.draws, ready)
        end = float(courses.cautious[row, size])
        self.lanes.append(_Lane(size, end, index, 0.0))

    def put_waiting(self) -> bool:
        """Each trial that waits where it adds least; whether there is a place for all."""
        return all(self._put(row, int(index)) for row, index in enumerate(self.task.waiting))

    def packing(self) -> Packing:
        """What has come of it."""
        order = range(len(self.task.rung.trials))
        left = {offer: len(free) for offer, free in self.free.items() if free}
        ends = np.stack([self.ends[index] for index in order], axis=1)
        begins = np.stack([self.begins[index] for index in order], axis=1)
        places = tuple(self.places[index] for index in order)
        usd = self.usd
        if (ends > self.barrier).any():
            ends, more = self._rescued(places, begins, ends)
            usd = usd + more
        return Packing(places, usd, ends, left)

    def _rescued(
        self, places: tuple[Place, ...], begins: FloatArray, ends: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Ends and added cost where trials that turn out late grow once that is known.

        A trial's speed is known as soon as it trains. In draws in which it would miss the barrier
        it takes the cheapest size that does not, or the fastest, a boot and a pause later.
        """
        supply = self.supply
        change = supply.boot_seconds + supply.switching.pause_seconds
        took = change + self.task.alone
        late = ends > self.barrier
        in_time = begins[:, :, None] + took <= self.barrier
        usd = took * supply.usd_per_second
        chosen = np.where(in_time, usd, np.inf).argmin(axis=2)
        chosen = np.where(in_time.any(axis=2), chosen, took.argmin(axis=2))[:, :, None]
        grown = begins + np.take_along_axis(took, chosen, axis=2)[:, :, 0]
        price = supply.usd_per_second[[place.size for place in places]]
        more = np.take_along_axis(usd, chosen, axis=2)[:, :, 0] - (ends - begins) * price
        grows = late & (grown < ends)
        return np.where(grows, grown, ends), np.where(grows, more, 0.0).sum(axis=1)

    def _put(self, row: int, index: int) -> bool:
        over = self._least_takeover(row)
        opened = self._least_opening(row)
        if over is None and opened is None:
            return False
        if opened is None or (over is not None and over[0] <= opened[0]):
            assert over is not None
            self._take_over(row, index, over[1])
        else:
            self._open(row, index, opened[1])
        return True

    def _least_takeover(self, row: int) -> tuple[float, _Lane] | None:
        """The lane with time left where it adds least; of equals the one that ends last."""
        idle, wait = self.task.idle, self.supply.switching.handover_seconds
        work, usd = idle.cautious[row], idle.usd[row]
        best: tuple[float, float, _Lane] | None = None
        for lane in self.lanes:
            if lane.end_seconds + wait + work[lane.size] > self.barrier:
                continue
            price = float(self.supply.usd_per_second[lane.size])
            adds = float(usd[lane.size]) + wait * price
            adds -= min(lane.spare_seconds, adds / price if price else 0.0) * price
            if best is None or (adds, -lane.end_seconds) < best[:2]:
                best = adds, -lane.end_seconds, lane
        return None if best is None else (best[0], best[2])

    def _take_over(self, row: int, index: int, lane: _Lane) -> None:
        idle, wait = self.task.idle, self.supply.switching.handover_seconds
        took = wait + idle.seconds[:, row, lane.size]
        price = float(self.supply.usd_per_second[lane.size])
        mean = float(took.mean())
        self._pay(max(mean - lane.spare_seconds, 0.0) * price, price, took)
        self.ends[index] = self.ends[lane.last] + took
        self.begins[index] = np.minimum(self.ends[lane.last], lane.end_seconds) + wait
        self.places[index] = Place(lane.size, Beginning.AFTER, lane.last)
        lane.end_seconds += wait + float(idle.cautious[row, lane.size])
        lane.spare_seconds = max(lane.spare_seconds - mean, 0.0)
        lane.last = index

    def _least_opening(self, row: int) -> tuple[float, int] | None:
        """The size on instances of its own that costs least and is in time."""
        idle, best = self.task.idle, None
        for size in range(len(self.supply.sizes)):
            opening = self._opening(size)
            if opening is None:
                continue
            waits, paid, least = opening
            if waits + idle.cautious[row, size] > self.barrier:
                continue
            seconds = waits + float(idle.seconds[:, row, size].mean())
            billed = max(seconds, least)
            usd = billed * float(self.supply.usd_per_second[size]) - min(billed, paid[0]) * paid[1]
            if best is None or usd < best[0]:
                best = usd, size
        return best

    def _opening(self, size: int) -> tuple[float, tuple[float, float], float] | None:
        """Seconds to the first step, what is paid (seconds, $ a second), the least billed."""
        supply, offer = self.supply, int(self.supply.offer_of[size])
        needed = int(supply.instances[size])
        free = self.free.get(supply.offers[offer].id, [])[:needed]
        unit = float(supply.unit_usd_per_second[size])
        if len(free) == needed:
            ready = max(one.ready_seconds for one in free)
            paid = sum(one.paid_seconds for one in free) / needed
            return ready + supply.switching.handover_seconds, (paid, unit * needed), 0.0
        if not self._has_room(offer, needed - len(free)):
            return None
        starts = float(supply.boot_seconds[size]) + supply.switching.start_seconds
        return starts, (0.0, 0.0), float(supply.minimum_billed_seconds[size])

    def _open(self, row: int, index: int, size: int) -> None:
        opening = self._opening(size)
        assert opening is not None
        waits, paid, least = opening
        supply, offer = self.supply, int(self.supply.offer_of[size])
        needed = int(supply.instances[size])
        free = self.free.get(supply.offers[offer].id, [])[:needed]
        for _ in free:
            self._take_free(supply.offers[offer].id)
        self._use(offer, needed - len(free))
        took = waits + self.task.idle.seconds[:, row, size]
        mean = float(took.mean())
        price = float(supply.usd_per_second[size])
        billed = max(mean, least)
        self._pay(billed * price - min(billed, paid[0]) * paid[1], price, took)
        self.ends[index] = took
        self.begins[index] = np.full(self.task.draws, waits)
        beginning = Beginning.FREED if len(free) == needed else Beginning.NEW
        self.places[index] = Place(size, beginning)
        end = waits + float(self.task.idle.cautious[row, size])
        spare = max(max(least, paid[0]) - mean, 0.0)
        self.lanes.append(_Lane(size, end, index, spare))

    def _pay(self, usd: float, usd_per_second: float, seconds: FloatArray) -> None:
        """A mean cost, and by how much more or less a draw's seconds are than their mean."""
        self.usd = self.usd + usd + usd_per_second * (seconds - seconds.mean())

    def _can_have(self, index: int, size: int, is_ready: bool) -> bool:
        held = int(self.task.rung.trials[index].held or 0)
        more, offer = self._more(held, size), int(self.supply.offer_of[size])
        if not is_ready or not more:
            return not is_ready and self._has_room(offer, more)
        return len(self.free.get(self.supply.offers[offer].id, [])) >= more

    def _more(self, held: int, size: int) -> int:
        """How many instances `size` has beyond what `held` has of the same offer."""
        needed = int(self.supply.instances[size])
        if self.supply.offer_of[held] != self.supply.offer_of[size]:
            return needed
        return max(needed - int(self.supply.instances[held]), 0)

    def _has_room(self, offer: int, instances: int) -> bool:
        if instances == 0 or not len(self.used):
            return True
        more = self.used + instances * self.supply.uses[:, offer]
        touched = self.supply.uses[:, offer] > 0
        return bool((more[touched] <= self.supply.maximum[touched] * (1.0 + _ROUNDING)).all())

    def _use(self, offer: int, instances: int) -> None:
        if instances and len(self.used):
            self.used = self.used + instances * self.supply.uses[:, offer]

    def _take_free(self, offer: str) -> None:
        self.free[offer].pop(0)

    def _offer(self, name: str) -> int:
        return next(i for i, offer in enumerate(self.supply.offers) if offer.id == name)


def _allowed(usd: FloatArray, late: FloatArray) -> list[tuple[int, float]]:
    return [(size, float(usd[size])) for size in np.flatnonzero(~late.astype(bool)).tolist()]
