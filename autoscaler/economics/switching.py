"""What it costs to come from one allocation to another, and what the rest of a job costs then.

While new instances boot the old ones work on: only the boot is lost. Where the limits leave no
room for both, or nothing is held, the job stands still meanwhile. Age of spot instances and the
chance that an order is not filled are not known here: fill time is part of the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot, SwitchingCosts
from autoscaler.economics.candidates import Candidates, start_seconds
from autoscaler.economics.supply import BoolArray, IntArray, Supply, fits
from autoscaler.goodput.throughput import FloatArray

# A job of unknown length has an hour to go, or as long again as it has had.
UNKNOWN_REMAINING_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Switches:
    """What changing to each of B allocations takes.

    Attributes:
        ready_seconds: until the new instances can train, (B,).
        boot_usd: what is paid for them until then, (B,).
        works_on: whether the old ones train meanwhile, (B,); otherwise they are gone.
        pause_seconds: paid for at the new price while nobody trains, (B,).
    """

    ready_seconds: FloatArray
    boot_usd: FloatArray
    works_on: BoolArray
    pause_seconds: FloatArray

    @property
    def lost_seconds(self) -> FloatArray:
        """For how long nobody trains, (B,)."""
        return np.where(self.works_on, 0.0, self.ready_seconds) + self.pause_seconds


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """From where one job changes.

    Attributes:
        candidates: what it might hold.
        switching: what changing costs it.
        room: what the limits leave beside all that is held now, by all jobs, (R,).
        has_run: whether a start from nothing is one from a checkpoint.
    """

    candidates: Candidates
    switching: SwitchingCosts
    room: FloatArray
    has_run: bool


def ground(job: JobSnapshot, supply: Supply, candidates: Candidates, room: FloatArray) -> Ground:
    """The ground on which a job stands; `room` as in `Ground`."""
    return Ground(candidates, job.switching, room, has_run=job.spent_usd > 0)


def switches(at: Ground, origin: int | IntArray | None, target: IntArray) -> Switches:
    """From `origin` (None: from nothing) to each `target`; the two are broadcast together."""
    candidates, costs = at.candidates, at.switching
    starts = np.array([start_seconds(costs, offer) for offer in candidates.offers])
    ready = starts[candidates.sizes.offer[target]]
    if origin is None:
        return Switches(
            ready_seconds=ready,
            boot_usd=candidates.unit_usd_per_second[target]
            * candidates.sizes.instances[target]
            * ready,
            works_on=np.zeros(len(target), dtype=np.bool_),
            pause_seconds=np.full(len(target), costs.restore_seconds if at.has_run else 0.0),
        )
    source, target = np.broadcast_arrays(origin, target)
    return _between(at, source, target, ready)


def _between(at: Ground, source: IntArray, target: IntArray, ready: FloatArray) -> Switches:
    candidates, costs = at.candidates, at.switching
    sizes = candidates.sizes
    same_offer = sizes.offer[source] == sizes.offer[target]
    kept = np.where(same_offer, np.minimum(sizes.instances[source], sizes.instances[target]), 0)
    extra = sizes.instances[target] - kept
    works_on = same_offer | _fit_beside(at, source, target)
    ready = np.where(extra > 0, ready, 0.0)
    starts_again = ~works_on | (
        same_offer & (sizes.devices_used[source] != sizes.devices_used[target])
    )
    pause = np.where(source == target, 0.0, costs.pause_seconds)
    return Switches(
        ready_seconds=ready,
        boot_usd=candidates.unit_usd_per_second[target] * extra * ready,
        works_on=works_on,
        pause_seconds=pause + np.where(starts_again, costs.restore_seconds, 0.0),
    )


def _fit_beside(at: Ground, source: IntArray, target: IntArray) -> BoolArray:
    """Whether all of `target` has room beside `source`, if everything else stays as it is."""
    candidates = at.candidates
    uses = candidates.uses[:, target]
    if candidates.held is not None:
        uses = uses + candidates.uses[:, source] - candidates.uses[:, [candidates.held]]
    return np.asarray(fits(uses, at.room).all(axis=0))


def work_ahead(job: JobSnapshot, supply: Supply, candidates: Candidates) -> float:
    """Useful examples over which a decision counts.

    All that remain, but no more than are done before a decision of this job is usually taken
    back. Where nobody knows what remains: an hour's worth, or as much as in all its time so far.
    """
    rate = float(candidates.rate[reference(candidates)])
    age_seconds = supply.now_seconds - job.submitted_seconds
    work = rate * max(UNKNOWN_REMAINING_SECONDS, age_seconds)
    if knows_the_end(job) and job.remaining_examples is not None:
        work = max(job.remaining_examples, 0.0)
    if job.switching.dwell_seconds is not None:
        work = min(work, rate * job.switching.dwell_seconds)
    return work


def knows_the_end(job: JobSnapshot) -> bool:
    """Whether it is known how much remains to be done."""
    return job.remaining_examples is not None and bool(np.isfinite(job.remaining_examples))


def reference(candidates: Candidates) -> int:
    """What is held, or else the cheapest."""
    if candidates.held is not None:
        return candidates.held
    return int(np.argmin(candidates.usd_per_second))


def cost_to_finish(at: Ground, value_of_time: float, work: float) -> FloatArray:
    """J of each candidate from what is held: $ for `work`, waiting included, (K, A).

    Boots and pauses, the work that the old instances do while the new ones boot, and the rest at
    the candidate's price of progress.
    """
    candidates = at.candidates
    everything = np.arange(len(candidates))
    taken = switches(at, candidates.held, everything)
    fixed = _fixed_usd(candidates, taken, everything, value_of_time)
    price = (candidates.usd_per_second + value_of_time) * candidates.seconds_per_example
    if candidates.held is None:
        return fixed + work * price
    done = _done_meanwhile(candidates.goodput[:, [candidates.held]], taken, work)
    return fixed + done * price[:, [candidates.held]] + (work - done) * price


def cost_with_way_back(
    at: Ground, value_of_time: float, work: float, look_seconds: float
) -> FloatArray:
    """As `cost_to_finish`, of going to each candidate for a look and back to what is held, (K, A).

    Raises:
        ValueError: nothing is held, so there is no way back.
    """
    candidates = at.candidates
    held = candidates.held
    if held is None:
        raise ValueError("nothing is held: there is no way back")
    everything = np.arange(len(candidates))
    there = switches(at, held, everything)
    back = switches(at, everything, np.full(len(candidates), held))
    price = (candidates.usd_per_second + value_of_time) * candidates.seconds_per_example
    before = _done_meanwhile(candidates.goodput[:, [held]], there, work)
    looked_seconds = look_seconds + np.where(back.works_on, back.ready_seconds, 0.0)
    tried = np.minimum(looked_seconds * candidates.goodput, work - before)
    home = np.full(len(candidates), held)
    fixed = _fixed_usd(candidates, there, everything, value_of_time)
    fixed = fixed + _fixed_usd(candidates, back, home, value_of_time)
    return fixed + tried * price + (work - tried) * price[:, [held]]


def _fixed_usd(
    candidates: Candidates, taken: Switches, target: IntArray, value_of_time: float
) -> FloatArray:
    """Boots and pauses, and the waiting while nobody trains, (B,)."""
    idle_seconds = np.where(taken.works_on, 0.0, taken.ready_seconds)
    paused = taken.pause_seconds * (candidates.usd_per_second[target] + value_of_time)
    usd: FloatArray = taken.boot_usd + idle_seconds * value_of_time + paused
    return usd


def _done_meanwhile(goodput: FloatArray, taken: Switches, work: float) -> FloatArray:
    """Useful examples that the old instances do while the new ones boot, (K, B)."""
    seconds = np.where(taken.works_on, taken.ready_seconds, 0.0)
    return np.minimum(goodput * seconds, work)
