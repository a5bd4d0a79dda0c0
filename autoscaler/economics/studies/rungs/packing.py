"""A cheap way to bring all trials of a rung to its barrier by a given time.

A trial that trains takes the cheapest size on which it is in time. A trial that waits takes over
instances from another, or free ones, or new ones: the longest trial first, each where it adds
least to the bill. Least total cost is a bin-packing problem, and this is a heuristic for it; the
tests compare it with every possibility on small rungs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from autoscaler.economics.studies.rungs.rung import Rung
from autoscaler.economics.studies.supply import Room, StudySupply
from autoscaler.economics.studies.trial_state import FreedInstances, TrialState
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

# Seconds that stand for never: finite, so that sums and differences are numbers.
NEVER = 1e15
_ROUNDING = 1e-9


class InstanceSource(Enum):
    """Source of the instances of a trial."""

    HOLDS = "holds"
    RESIZES = "resizes"
    FREED = "freed"
    NEW = "new"
    AFTER = "after"


class TrialPlacement(NamedTuple):
    """Size of a trial, where its instances come from, and the trial (index) that leaves them."""

    size: int
    source: InstanceSource
    after: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """Time and cost of N trials on A sizes, a change to them included.

    Attributes:
        seconds: until the barrier's progress is reached, in each draw, (K, N, A).
        mean: over the draws, (N, A).
        cautious: exceeded in few draws only, (N, A).
        usd: mean cost, (N, A); of a trial that waits, without its start.
    """

    seconds: FloatArray
    mean: FloatArray
    cautious: FloatArray
    usd: FloatArray


class TrialSize(NamedTuple):
    """One size of a trial: mean cost, size, whether on free instances, cautious end."""

    usd: float
    size: int
    on_free: bool
    end_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class PackingTask:
    """A rung prepared for packings at many barriers.

    Attributes:
        rung: the trials.
        supply: sizes that they may hold.
        running: trials that hold something, by their places in the rung; rows of `changes`.
        waiting: the other trials, in the order in which they are packed; rows of `idle`.
        changes: running trials, from now on.
        idle: waiting trials, from a ready instance on.
        resizes: options of each running trial, the cheapest first.
        openings: options of each waiting trial on new instances, the cheapest first.
    """

    rung: Rung
    supply: StudySupply
    running: IntArray
    waiting: IntArray
    changes: Options
    idle: Options
    resizes: tuple[tuple[TrialSize, ...], ...]
    openings: tuple[tuple[TrialSize, ...], ...]

    @property
    def draws(self) -> int:
        """Number of draws, K."""
        return len(self.idle.seconds)


@dataclass(frozen=True, slots=True, eq=False)
class RungPacking:
    """Assignments of all trials of a rung, with cost and ends.

    Attributes:
        assignments: one a trial.
        usd: cost, (K,).
        ends: when each trial is done, (K, N).
        unused: free instances that no trial takes, by offer.
        barrier_seconds: when all were to be done.
    """

    assignments: tuple[TrialPlacement, ...]
    usd: FloatArray
    ends: FloatArray
    unused: dict[str, int]
    barrier_seconds: float

    @property
    def seconds(self) -> FloatArray:
        """Time at which the barrier is reached, (K,)."""
        latest: FloatArray = self.ends.max(axis=1)
        return latest


def packing_task(rung: Rung, supply: StudySupply, caution: float) -> PackingTask:
    """Prepare a rung for packings; `caution` is the quantile of a trial's time to plan with.

    Raises:
        ValueError: a trial's goodput is not of as many draws and sizes as that of the others.
    """
    shape = rung.trials[0].goodput.shape[0], len(supply.sizes)
    for trial in rung.trials:
        if trial.goodput.shape != shape:
            raise ValueError(f"trial {trial.id}: goodput of {trial.goodput.shape}, not {shape}")
    goodput = supply.with_reclaims(np.stack([trial.goodput for trial in rung.trials], axis=1))
    work = np.array([trial.to_decision for trial in rung.trials])[:, None]
    alone = np.minimum(np.where(goodput > 0, work / np.maximum(goodput, 1e-300), NEVER), NEVER)
    holds = np.array([trial.held is not None for trial in rung.trials])
    running, waiting = np.flatnonzero(holds), np.flatnonzero(~holds)
    idle = _options(
        alone[:, waiting], alone[:, waiting].mean(axis=0) * supply.usd_per_second, caution
    )
    for row, place in enumerate(waiting.tolist()):
        if not rung.trials[place].is_measured:
            # Growing once its speed is known costs a boot; growing before is a bet on a guess.
            dearer = np.arange(len(supply.sizes)) != idle.usd[row].argmin()
            idle.cautious[row, dearer] = NEVER
    expected = np.array([rung.trials[place].is_expected for place in waiting.tolist()])
    order = np.lexsort((-idle.cautious.min(axis=1), expected))
    idle = Options(idle.seconds[:, order], idle.mean[order], idle.cautious[order], idle.usd[order])
    trials = [rung.trials[place] for place in running.tolist()]
    changes = _changes(trials, alone[:, running], supply, caution)
    return PackingTask(
        rung,
        supply,
        running,
        waiting[order],
        changes,
        idle,
        tuple(_resizes(changes, row) for row in range(len(running))),
        tuple(_openings(idle, supply, row) for row in range(len(waiting))),
    )


def _changes(
    trials: list[TrialState], alone: FloatArray, supply: StudySupply, caution: float
) -> Options:
    """Return the options of N trials that hold something.

    Old instances train while new ones boot, so growth loses only the pause; what it costs is the
    boot. Seconds that are paid for already cost nothing. `alone` are seconds of the trials' work
    on each size without a change, (K, N, A).
    """
    if not trials:
        return _options(alone, np.zeros(alone.shape[1:]), caution)
    held = np.array([trial.held for trial in trials], dtype=np.int64)
    ready = np.array([trial.ready_seconds for trial in trials])[:, None]
    paid = np.array([trial.paid_seconds for trial in trials])[:, None]
    same = supply.offer_of == supply.offer_of[held][:, None]
    kept = same * np.minimum(supply.instances, supply.instances[held][:, None])
    begins = np.maximum(np.where(kept == supply.instances, 0.0, supply.boot_seconds), ready)
    left = np.take_along_axis(alone, held[None, :, None], axis=2)
    done = (begins - ready) / left
    changed = begins + supply.switching.pause_seconds + np.maximum(1.0 - done, 0.0) * alone
    seconds = np.where(done < 1.0, np.minimum(changed, NEVER), ready + left)
    rows = np.arange(len(trials))
    seconds[:, rows, held] = (ready + left)[:, :, 0]
    unit, added = supply.unit_usd_per_second, supply.instances - kept
    usd = seconds * supply.usd_per_second - kept * unit * np.minimum(seconds, paid)
    usd += added * unit * np.maximum(supply.minimum_billed_seconds - seconds, 0.0)
    usd += ~same * supply.boot_seconds * supply.usd_per_second[held][:, None]
    return _options(seconds, usd.mean(axis=0), caution)


def _options(seconds: FloatArray, usd: FloatArray, caution: float) -> Options:
    if not seconds.shape[1]:
        return Options(seconds, usd, usd.copy(), usd)
    cautious = np.quantile(seconds, caution, axis=0, method="higher")
    return Options(seconds, seconds.mean(axis=0), cautious, usd)


def _resizes(changes: Options, row: int) -> tuple[TrialSize, ...]:
    usd, ends = changes.usd[row].tolist(), changes.cautious[row].tolist()
    return tuple(sorted(TrialSize(usd[size], size, False, ends[size]) for size in range(len(usd))))


def _openings(idle: Options, supply: StudySupply, row: int) -> tuple[TrialSize, ...]:
    starts = supply.boot_seconds + supply.switching.start_seconds
    billed = np.maximum(starts + idle.mean[row], supply.minimum_billed_seconds)
    usd = (billed * supply.usd_per_second).tolist()
    ends = (starts + idle.cautious[row]).tolist()
    return tuple(sorted(TrialSize(usd[size], size, False, ends[size]) for size in range(len(usd))))


def pack(task: PackingTask, barrier_seconds: float) -> RungPacking | None:
    """Return a packing that is done by then in most draws; None where none was found."""
    packer = _Packer(task, barrier_seconds)
    return packer.packing() if packer.place_running() and packer.place_waiting() else None


def keep(task: PackingTask, barrier_seconds: float = 0.0) -> RungPacking | None:
    """Return the packing in which all that trains goes on as it is; None if none was found.

    Trials that wait are placed beside it, to be done by the barrier or with the last that trains.
    """
    packer = _Packer(task, NEVER)
    for row, place in enumerate(task.running.tolist()):
        packer.place_on(row, int(task.rung.trials[place].held or 0))
    ends = (lane.end_seconds for lane in packer.lanes)
    packer.barrier = max(barrier_seconds * (1.0 + _ROUNDING), *ends)
    return packer.packing() if packer.place_waiting() else None


@dataclass(slots=True)
class _Lane:
    """Instances of one size, and the trials that train on them one after the other.

    Attributes:
        size: the size.
        end_seconds: cautious end of the last trial.
        last: the last trial.
        spare_seconds: paid for in any case after that end.
    """

    size: int
    end_seconds: float
    last: int
    spare_seconds: float


class _Packer:
    """Places one trial after the other, within the limits and what is free."""

    def __init__(self, task: PackingTask, barrier_seconds: float) -> None:
        self.task, self.supply = task, task.supply
        self.barrier = barrier_seconds * (1.0 + _ROUNDING)
        self.offers: list[int] = self.supply.offer_of.tolist()
        self.needs: list[int] = self.supply.instances.tolist()
        self.prices: list[float] = self.supply.usd_per_second.tolist()
        count = len(task.rung.trials)
        self.assignments: list[TrialPlacement] = [TrialPlacement(0, InstanceSource.NEW)] * count
        self.ends = np.zeros((task.draws, count))
        self.lanes: list[_Lane] = []
        self.usd = np.zeros(task.draws)
        self.room = Room(self.supply)
        self.free: dict[int, list[FreedInstances]] = {}
        for freed in sorted(
            task.rung.freed, key=lambda freed: (freed.ready_seconds, -freed.paid_seconds)
        ):
            offer = self.supply.place_of[freed.offer]
            self.free.setdefault(offer, []).extend([freed] * freed.instances)
            self.room.take(offer, freed.instances)
        for place in task.running.tolist():
            held = int(task.rung.trials[place].held or 0)
            self.room.take(self.offers[held], self.needs[held])

    def place_running(self) -> bool:
        """Place trials that train, each on its cheapest size in time; return whether all fit."""
        order = sorted(
            range(len(self.task.running)), key=lambda row: -self.task.resizes[row][0].usd
        )
        return all(self._resize(row) for row in order)

    def _resize(self, row: int) -> bool:
        for option in self.task.resizes[row]:
            fits = self.room.bears(self.offers[option.size], self._added(row, option.size))
            if fits and option.end_seconds <= self.barrier:
                self.place_on(row, option.size)
                return True
        return False

    def _held(self, row: int) -> int:
        return int(self.task.rung.trials[int(self.task.running[row])].held or 0)

    def _added(self, row: int, size: int) -> int:
        """Return the number of instances that a running trial needs beyond those it keeps."""
        held = self._held(row)
        kept = self.needs[held] if self.offers[held] == self.offers[size] else 0
        return max(self.needs[size] - kept, 0)

    def place_on(self, row: int, size: int) -> None:
        """Let a trial that trains go on with a size."""
        held, place, changes = self._held(row), int(self.task.running[row]), self.task.changes
        kept = self.needs[held] if self.offers[held] == self.offers[size] else 0
        self.room.take(self.offers[size], max(self.needs[size] - kept, 0))
        self.room.take(self.offers[held], min(kept, self.needs[size]) - self.needs[held])
        mean, took = float(changes.mean[row, size]), changes.seconds[:, row, size]
        self._pay(float(changes.usd[row, size]), size, took - mean)
        paid = self.task.rung.trials[place].paid_seconds if size == held else 0.0
        end = float(changes.cautious[row, size])
        self.lanes.append(_Lane(size, end, place, max(paid - mean, 0.0)))
        source = InstanceSource.HOLDS if size == held else InstanceSource.RESIZES
        self._put(place, TrialPlacement(size, source), took)

    def place_waiting(self) -> bool:
        """Place trials that wait, each where it adds least; return whether all have a place."""
        return all(self._begin(row, int(place)) for row, place in enumerate(self.task.waiting))

    def packing(self) -> RungPacking:
        """Return the packing of all trials."""
        offers = self.supply.offers
        unused = {offers[offer].id: len(free) for offer, free in self.free.items() if free}
        return RungPacking(tuple(self.assignments), self.usd, self.ends, unused, self.barrier)

    def _begin(self, row: int, place: int) -> bool:
        lane, opened = self._cheapest_lane(row), self._cheapest_opening(row)
        if lane is not None and (opened is None or lane[0] <= opened.usd):
            self._take_over(row, place, lane[1])
        elif opened is not None:
            self._open(row, place, opened)
        return lane is not None or opened is not None

    def _cheapest_lane(self, row: int) -> tuple[float, _Lane] | None:
        """Return the lane in time on which a trial adds least, of equals the last to end."""
        idle, wait = self.task.idle, self.supply.switching.handover_seconds
        work, usd = idle.cautious[row].tolist(), idle.usd[row].tolist()
        best: tuple[float, float, _Lane] | None = None
        for lane in self.lanes:
            if lane.end_seconds + wait + work[lane.size] > self.barrier:
                continue
            price = self.prices[lane.size]
            adds = max(usd[lane.size] + (wait - lane.spare_seconds) * price, 0.0)
            if best is None or (adds, -lane.end_seconds) < best[:2]:
                best = adds, -lane.end_seconds, lane
        return None if best is None else (best[0], best[2])

    def _take_over(self, row: int, place: int, lane: _Lane) -> None:
        idle, size, wait = self.task.idle, lane.size, self.supply.switching.handover_seconds
        took, mean = wait + idle.seconds[:, row, size], wait + float(idle.mean[row, size])
        self._pay(max(mean - lane.spare_seconds, 0.0) * self.prices[size], size, took - mean)
        self._put(
            place,
            TrialPlacement(size, InstanceSource.AFTER, lane.last),
            self.ends[:, lane.last] + took,
        )
        lane.end_seconds += wait + float(idle.cautious[row, size])
        lane.spare_seconds = max(lane.spare_seconds - mean, 0.0)
        lane.last = place

    def _cheapest_opening(self, row: int) -> TrialSize | None:
        """Return the cheapest size in time on instances of its own, free or new."""
        best = next(
            (
                option
                for option in self.task.openings[row]
                if option.end_seconds <= self.barrier and self._fits_new(option.size)
            ),
            None,
        )
        ready = (self._on_free(row, size) for size in range(len(self.needs)) if self.free)
        return min((option for option in (best, *ready) if option is not None), default=None)

    def _fits_new(self, size: int) -> bool:
        """Return whether the limits leave room for a size, beyond instances that are free."""
        free = len(self.free.get(self.offers[size], ()))
        return free < self.needs[size] and self.room.bears(
            self.offers[size], self.needs[size] - free
        )

    def _on_free(self, row: int, size: int) -> TrialSize | None:
        """Return the option of a size on free instances; None if too few are, or it is late."""
        free = self.free.get(self.offers[size], [])[: self.needs[size]]
        if len(free) < self.needs[size]:
            return None
        idle = self.task.idle
        wait = free[-1].ready_seconds + self.supply.switching.handover_seconds
        if wait + idle.cautious[row, size] > self.barrier:
            return None
        seconds = wait + float(idle.mean[row, size])
        unit = float(self.supply.unit_usd_per_second[size])
        credit = sum(min(seconds, freed.paid_seconds) for freed in free) * unit
        end = wait + float(idle.cautious[row, size])
        return TrialSize(seconds * self.prices[size] - credit, size, True, end)

    def _open(self, row: int, place: int, option: TrialSize) -> None:
        """Let a trial begin on instances of its own."""
        idle, size, needs = self.task.idle, option.size, self.needs[option.size]
        offer = self.offers[size]
        taken = self.free.get(offer, [])[:needs]
        del self.free.get(offer, [])[:needs]
        self.room.take(offer, needs - len(taken))
        if option.on_free:
            wait = taken[-1].ready_seconds + self.supply.switching.handover_seconds
            paid = sum(freed.paid_seconds for freed in taken) / needs
        else:
            wait = float(self.supply.boot_seconds[size]) + self.supply.switching.start_seconds
            paid = float(self.supply.minimum_billed_seconds[size])
        mean = wait + float(idle.mean[row, size])
        took = wait + idle.seconds[:, row, size]
        self._pay(option.usd, size, took - mean)
        self.lanes.append(_Lane(size, option.end_seconds, place, max(paid - mean, 0.0)))
        source = InstanceSource.FREED if option.on_free else InstanceSource.NEW
        self._put(place, TrialPlacement(size, source), took)

    def _put(self, index: int, assignment: TrialPlacement, ends: FloatArray) -> None:
        self.assignments[index] = assignment
        self.ends[:, index] = ends

    def _pay(self, usd: float, size: int, more_seconds: FloatArray) -> None:
        """Add a mean cost, and in each draw that of its seconds beyond the mean."""
        self.usd = self.usd + (usd + self.prices[size] * more_seconds)
