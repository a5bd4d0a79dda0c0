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

from autoscaler.economics.studies.courses import NEVER
from autoscaler.economics.studies.packing_task import PackingTask
from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.rung import FreedInstances
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


class _Opening(NamedTuple):
    """Beginning on instances of its own: the seconds to the first step, what is paid and billed.

    `paid_seconds` of it are, at `unit` $ a second; at least `least_seconds` are billed.
    """

    is_ready: bool
    waits_seconds: float
    paid_seconds: float
    least_seconds: float
    unit: float


@dataclass(slots=True)
class _Lane:
    """Instances of one size and who trains on them, one after the other.

    They are paid for in any case for `spare_seconds` after the last is done, until `paid_seconds`.
    """

    size: int
    end_seconds: float
    last: int
    spare_seconds: float
    paid_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where each trial of the rung is put, what that costs (K,), when each is done (K, N).

    `unused` are the free instances of each offer that nobody takes; `barrier_seconds` is when all
    were to be done. `paid` are the instances that are paid for in any case up to some time: how
    many, until when.
    """

    places: tuple[Place, ...]
    usd: FloatArray
    ends: FloatArray
    unused: dict[str, int]
    barrier_seconds: float
    paid: tuple[tuple[int, float], ...] = ()

    @property
    def seconds(self) -> FloatArray:
        """When the barrier is reached, (K,)."""
        latest: FloatArray = self.ends.max(axis=1)
        return latest


def pack(task: PackingTask, barrier_seconds: float) -> Packing | None:
    """A packing that is done by then, cautiously; None where none was found."""
    packer = _Packer(task, barrier_seconds)
    if not packer.put_running() or not packer.put_waiting():
        return None
    return packer.packing()


def keep(task: PackingTask, barrier_seconds: float = 0.0) -> Packing | None:
    """All that trains goes on as it is, those that wait come in by then; None if they can't."""
    packer = _Packer(task, NEVER)
    for row, index in enumerate(task.running.tolist()):
        held = task.rung.trials[index].held
        packer.put_on(row, index, int(held or 0), is_ready=False)
    ends = (lane.end_seconds for lane in packer.lanes)
    packer.barrier = max(barrier_seconds * (1.0 + _ROUNDING), *ends)
    return packer.packing() if packer.put_waiting() else None


class _Packer:
    """Puts one trial after the other; knows what is left of limits and of free instances."""

    def __init__(self, task: PackingTask, barrier_seconds: float) -> None:
        self.task = task
        self.supply = task.supply
        self.barrier = barrier_seconds * (1.0 + _ROUNDING)
        self.offers: list[int] = self.supply.offer_of.tolist()
        self.needs: list[int] = self.supply.instances.tolist()
        self.prices: list[float] = self.supply.usd_per_second.tolist()
        self.places: dict[int, Place] = {}
        self.ends: dict[int, FloatArray] = {}
        self.begins: dict[int, FloatArray] = {}
        self.lanes: list[_Lane] = []
        self.usd = np.zeros(task.draws)
        self.free: dict[str, list[FreedInstances]] = {}
        self.room = Room(self.supply)
        for freed in sorted(
            task.rung.freed, key=lambda one: (one.ready_seconds, -one.paid_seconds)
        ):
            self.free.setdefault(freed.offer, []).extend(
                [FreedInstances(freed.offer, 1, freed.paid_seconds, freed.ready_seconds)]
                * freed.instances
            )
            self.room.take(self.supply.place_of[freed.offer], freed.instances)
        for index in task.running.tolist():
            held = int(task.rung.trials[index].held or 0)
            self.room.take(int(self.supply.offer_of[held]), int(self.supply.instances[held]))

    def put_running(self) -> bool:
        """Each trial that trains on the cheapest size in time; whether there is one for all."""
        order = sorted(
            range(len(self.task.running)), key=lambda row: -self.task.resizes[row][0].usd
        )
        for row in order:
            index = int(self.task.running[row])
            for option in self.task.resizes[row]:
                if option.end_seconds > self.barrier or (option.is_ready and not self.free):
                    continue
                if self._can_have(index, option.size, option.is_ready):
                    self.put_on(row, index, option.size, option.is_ready)
                    break
            else:
                return False
        return True

    def put_on(self, row: int, index: int, size: int, is_ready: bool) -> None:
        """A trial that trains goes on, on this size."""
        courses = self.task.ready if is_ready else self.task.booting
        held = int(self.task.rung.trials[index].held or 0)
        added, offer = self._more(held, size), self.offers[size]
        if is_ready:
            for _ in range(added):
                self._take_free(self.supply.offers[offer].id)
        else:
            self.room.take(offer, added)
        self.room.take(self.offers[held], -self._more(size, held))
        beginning = Beginning.HOLDS if size == held else Beginning.RESIZES
        self.places[index] = Place(size, beginning)
        self.ends[index] = courses.seconds[:, row, size]
        more = self.ends[index] - courses.mean[row, size]
        self._pay(float(courses.usd[row, size]), self.prices[size], more)
        trial = self.task.rung.trials[index]
        self.begins[index] = np.full(self.task.draws, trial.ready_seconds)
        end = float(courses.cautious[row, size])
        paid = trial.paid_seconds if size == held else 0.0
        spare = max(paid - float(courses.mean[row, size]), 0.0)
        self.lanes.append(_Lane(size, end, index, spare, paid))

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
        return Packing(places, usd, ends, left, self.barrier, self._paid())

    def _paid(self) -> tuple[tuple[int, float], ...]:
        """Of the lanes and of what nobody takes."""
        lanes = [(self.needs[lane.size], lane.paid_seconds) for lane in self.lanes]
        free = [(1, one.paid_seconds) for some in self.free.values() for one in some]
        return tuple(one for one in lanes + free if one[1] > 0)

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
        work, usd = idle.cautious[row].tolist(), idle.usd[row].tolist()
        best: tuple[float, float, _Lane] | None = None
        for lane in self.lanes:
            if lane.end_seconds + wait + work[lane.size] > self.barrier:
                continue
            price = self.prices[lane.size]
            adds = usd[lane.size] + wait * price
            adds -= min(lane.spare_seconds * price, adds)
            if best is None or (adds, -lane.end_seconds) < best[:2]:
                best = adds, -lane.end_seconds, lane
        return None if best is None else (best[0], best[2])

    def _take_over(self, row: int, index: int, lane: _Lane) -> None:
        idle, wait = self.task.idle, self.supply.switching.handover_seconds
        took = wait + idle.seconds[:, row, lane.size]
        price, mean = self.prices[lane.size], wait + float(idle.mean[row, lane.size])
        self._pay(max(mean - lane.spare_seconds, 0.0) * price, price, took - mean)
        self.ends[index] = self.ends[lane.last] + took
        self.begins[index] = np.minimum(self.ends[lane.last], lane.end_seconds) + wait
        self.places[index] = Place(lane.size, Beginning.AFTER, lane.last)
        lane.end_seconds += wait + float(idle.cautious[row, lane.size])
        lane.spare_seconds = max(lane.spare_seconds - mean, 0.0)
        lane.last = index

    def _least_opening(self, row: int) -> tuple[float, int] | None:
        """The size on instances of its own that costs least and is in time."""
        best = None
        for option in self.task.openings[row]:
            if option.end_seconds <= self.barrier and self._opening(option.size) is not None:
                best = option.usd, option.size
                break
        if self.free:
            most = max(len(free) for free in self.free.values())
            sizes = (size for size, needed in enumerate(self.needs) if needed <= most)
            ready = (self._ready_opening(row, size) for size in sizes)
            best = min([one for one in (best, *ready) if one is not None], default=None)
        return best

    def _ready_opening(self, row: int, size: int) -> tuple[float, int] | None:
        """What a size costs on instances that are free, if there are enough, in time."""
        opening = self._opening(size)
        if opening is None or not opening.is_ready:
            return None
        if opening.waits_seconds + self.task.idle.cautious[row, size] > self.barrier:
            return None
        seconds = opening.waits_seconds + float(self.task.idle.mean[row, size])
        return seconds * self.prices[size] - min(
            seconds, opening.paid_seconds
        ) * opening.unit, size

    def _opening(self, size: int) -> _Opening | None:
        """What beginning on a size means; None where the limits leave no room."""
        supply, offer, needed = self.supply, self.offers[size], self.needs[size]
        free = self.free.get(supply.offers[offer].id, ())[:needed]
        if len(free) == needed:
            ready = max(one.ready_seconds for one in free)
            paid = sum(one.paid_seconds for one in free) / needed
            wait = ready + supply.switching.handover_seconds
            return _Opening(
                True, wait, paid, 0.0, float(supply.unit_usd_per_second[size]) * needed
            )
        if not self.room.bears(offer, needed - len(free)):
            return None
        starts = float(supply.boot_seconds[size]) + supply.switching.start_seconds
        return _Opening(False, starts, 0.0, float(supply.minimum_billed_seconds[size]), 0.0)

    def _open(self, row: int, index: int, size: int) -> None:
        opening = self._opening(size)
        assert opening is not None
        offer, needed = self.offers[size], self.needs[size]
        taken = min(len(self.free.get(self.supply.offers[offer].id, ())), needed)
        for _ in range(taken):
            self._take_free(self.supply.offers[offer].id)
        self.room.take(offer, needed - taken)
        took = opening.waits_seconds + self.task.idle.seconds[:, row, size]
        mean = opening.waits_seconds + float(self.task.idle.mean[row, size])
        billed = max(mean, opening.least_seconds)
        credit = min(billed, opening.paid_seconds) * opening.unit
        self._pay(billed * self.prices[size] - credit, self.prices[size], took - mean)
        self.ends[index] = took
        self.begins[index] = np.full(self.task.draws, opening.waits_seconds)
        self.places[index] = Place(size, Beginning.FREED if opening.is_ready else Beginning.NEW)
        end = opening.waits_seconds + float(self.task.idle.cautious[row, size])
        paid = max(opening.least_seconds, opening.paid_seconds)
        self.lanes.append(_Lane(size, end, index, max(paid - mean, 0.0), paid))

    def _pay(self, usd: float, usd_per_second: float, more_seconds: FloatArray) -> None:
        """A mean cost, and by how much more a draw's seconds are than their mean."""
        self.usd = self.usd + (usd + usd_per_second * more_seconds)

    def _can_have(self, index: int, size: int, is_ready: bool) -> bool:
        held = int(self.task.rung.trials[index].held or 0)
        more, offer = self._more(held, size), self.offers[size]
        if not is_ready or not more:
            return not is_ready and self.room.bears(offer, more)
        return len(self.free.get(self.supply.offers[offer].id, [])) >= more

    def _more(self, held: int, size: int) -> int:
        """How many instances `size` has beyond what `held` has of the same offer."""
        if self.offers[held] != self.offers[size]:
            return self.needs[size]
        return max(self.needs[size] - self.needs[held], 0)

    def _take_free(self, offer: str) -> None:
        self.free[offer].pop(0)
