"""What it costs to come from one allocation to another, and what the rest of a job costs then.

While new instances boot the old ones work on: only the boot is lost. Where the limits leave no
room for both, or nothing is held, the job stands still meanwhile. Age of spot instances and the
chance that an order is not filled are not known here: fill time is part of the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.economics.candidates import Candidates
from autoscaler.economics.standby import Standby
from autoscaler.economics.starts import billed_starts_seconds, starts_seconds
from autoscaler.economics.supply import BoolArray, IntArray, fits
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Switches:
    """What changing to each of B allocations takes.

    Attributes:
        ready_seconds: until the new instances can train, (B,).
        new_share: which share of the instances of each are new, (B,).
        boot_usd: what is paid for the new ones until then, the way of a checkpoint included, (B,).
        carried_usd: what of that is for the way of a checkpoint, (B,).
        works_on: whether the old ones train meanwhile, (B,); otherwise they are gone.
        pause_seconds: paid for at the new price while nobody trains, (B,).
    """

    ready_seconds: FloatArray
    new_share: FloatArray
    boot_usd: FloatArray
    carried_usd: FloatArray
    works_on: BoolArray
    pause_seconds: FloatArray

    @property
    def lost_seconds(self) -> FloatArray:
        """For how long nobody trains, (B,)."""
        return np.where(self.works_on, 0.0, self.ready_seconds) + self.pause_seconds


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """Allocations at one end of changes: arrays that broadcast with those of the other end.

    Attributes:
        offer: which it is.
        instances: of each.
        devices_used: of each instance.
        usd_per_second: with the refills of spot.
        rate: useful examples a second.
        unit_usd_per_second: the plain price of one instance.
        start_seconds: from the order of an instance to its first step.
        billed_start_seconds: from its launch to its first step.
        is_sure: whether instances come when they are ordered, as far as is known.
        network: a number for where they can train together.
        upload_usd: for the way of a checkpoint from one of them.
        download_usd: for the way of a checkpoint to all of them.
    """

    offer: IntArray
    instances: IntArray
    devices_used: IntArray
    usd_per_second: FloatArray
    rate: FloatArray
    unit_usd_per_second: FloatArray
    start_seconds: FloatArray
    billed_start_seconds: FloatArray
    is_sure: BoolArray
    network: IntArray
    upload_usd: FloatArray
    download_usd: FloatArray


@dataclass(frozen=True, eq=False)
class Ground:
    """From where one job changes.

    Attributes:
        candidates: what it might hold.
        switching: what changing costs it.
        room: what the limits leave beside all that is held now, by all jobs, (R,).
        has_run: whether a start from nothing is one from a checkpoint.
        standby: instances of the one job that are paused beside what is held.
        may_stand_by: whether what is held is paused while another kind of instance is looked at.
        starting_instances: how many of those held do not train yet.
    """

    candidates: Candidates
    switching: SwitchingCosts
    room: FloatArray
    has_run: bool
    standby: Standby | None = None
    may_stand_by: bool = True
    starting_instances: int = 0

    @cached_property
    def start_seconds(self) -> FloatArray:
        """From the order of an instance of each offer to its first step, (O,)."""
        return starts_seconds(self.switching, self.candidates.offers)

    @cached_property
    def billed_start_seconds(self) -> FloatArray:
        """From the launch of an instance of each offer to its first step, (O,)."""
        return billed_starts_seconds(self.switching, self.candidates.offers)

    @cached_property
    def _from_held(self) -> dict[float | None, Switches]:
        return {}

    def from_held(self, value_of_time: float | None = None) -> Switches:
        """From what is held to each candidate, as `switches`."""
        if value_of_time not in self._from_held:
            everything = np.arange(len(self.candidates))
            found = switches(self, self.candidates.held, everything, value_of_time)
            self._from_held[value_of_time] = found
        return self._from_held[value_of_time]


def switches(
    at: Ground,
    origin: int | IntArray | None,
    target: IntArray,
    value_of_time: float | None = None,
) -> Switches:
    """From `origin` (None: from nothing) to each `target`; the two are broadcast together.

    With a value of time the old instances go at once where what they do while the new ones boot
    is dearer than doing it afterwards, and than starting from a checkpoint then:
    ``boot * (p(a) - G(a) (p(b) + v) / G(b)) > restore * (p(b) + v)``. Never for what may not be
    had: what has gone can't come back.
    """
    costs, new = at.switching, _end(at, target)
    if origin is None:
        return from_nothing(new, costs.restore_seconds if at.has_run else 0.0)
    old = _end(at, origin)
    taken = between(
        old,
        new,
        Halts(costs.pause_seconds, costs.restore_seconds, costs.carry_seconds),
        _fit_beside(at, *np.broadcast_arrays(origin, target)),
        value_of_time,
    )
    if at.standby is None or not isinstance(origin, int) or origin != at.candidates.held:
        return taken
    return with_standby(taken, new, at.standby, costs.pause_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class WaysOn:
    """Where to after a look at a size.

    Attributes:
        to: candidates, (W,).
        usd_per_example: what the rest costs on each candidate, (K, A), where it is known better
            than by its price of progress.
    """

    to: IntArray
    usd_per_example: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Halts:
    """Seconds that a change of membership takes, and that a start from a checkpoint adds.

    Where that is one in another network, `carry_seconds` more.
    """

    pause_seconds: float | FloatArray
    restore_seconds: float | FloatArray
    carry_seconds: float | FloatArray


def from_nothing(new: End, pause_seconds: float | FloatArray) -> Switches:
    """A start of `new`, with what a start from a checkpoint takes, if it is one."""
    carried_usd = np.where(np.asarray(pause_seconds) > 0.0, new.download_usd, 0.0)
    boot_usd = new.unit_usd_per_second * new.instances * new.billed_start_seconds
    return Switches(
        ready_seconds=new.start_seconds,
        new_share=np.ones(new.offer.shape),
        boot_usd=boot_usd + carried_usd,
        carried_usd=carried_usd,
        works_on=np.zeros(new.offer.shape, dtype=np.bool_),
        pause_seconds=np.broadcast_to(np.asarray(pause_seconds), new.offer.shape),
    )


def between(
    old: End,
    new: End,
    halts: Halts,
    fits_beside: BoolArray,
    value_of_time: float | FloatArray | None,
) -> Switches:
    """As `switches`, from `old` to `new`; `fits_beside`: there is room for both.

    In another network the new ones start from the checkpoint that the old ones leave behind.
    """
    way_usd = old.upload_usd + new.download_usd
    is_elsewhere = old.network != new.network
    is_worth_it: BoolArray = np.ones(1, dtype=np.bool_)
    if value_of_time is not None:
        paid = new.usd_per_second + value_of_time
        saved = new.start_seconds * (old.usd_per_second - old.rate * paid / new.rate)
        spared_usd = halts.restore_seconds * paid + way_usd
        is_worth_it = ~new.is_sure | (saved <= np.where(is_elsewhere, 0.0, spared_usd))
    same_offer = old.offer == new.offer
    kept = np.where(same_offer, np.minimum(old.instances, new.instances), 0)
    extra = new.instances - kept
    as_used = old.devices_used == new.devices_used
    is_same = same_offer & (old.instances == new.instances) & as_used
    works_on = same_offer | (fits_beside & is_worth_it)
    starts_again = ~works_on | (same_offer & ~as_used) | is_elsewhere
    pause = np.where(is_same, 0.0, halts.pause_seconds)
    pause = pause + np.where(is_elsewhere, halts.carry_seconds, 0.0)
    carried_usd = np.where(starts_again, way_usd, 0.0)
    return Switches(
        ready_seconds=np.where(extra > 0, new.start_seconds, 0.0),
        new_share=extra / new.instances,
        boot_usd=new.unit_usd_per_second * extra * new.billed_start_seconds + carried_usd,
        carried_usd=carried_usd,
        works_on=works_on,
        pause_seconds=pause + np.where(starts_again, halts.restore_seconds, 0.0),
    )


def with_standby(
    taken: Switches, new: End, standby: Standby, pause_seconds: float | FloatArray
) -> Switches:
    """Return changes to `new` where instances on standby need no boot."""
    is_kept = new.offer == standby.offer
    missing = np.maximum(new.instances - standby.instances, 0) / new.instances
    missing = np.where(is_kept, missing, 1.0)
    is_whole = is_kept & (missing == 0.0)
    carried_usd = np.where(is_whole, 0.0, taken.carried_usd)
    return Switches(
        ready_seconds=np.where(is_whole, 0.0, taken.ready_seconds),
        new_share=taken.new_share * missing,
        boot_usd=(taken.boot_usd - taken.carried_usd) * missing + carried_usd,
        carried_usd=carried_usd,
        works_on=taken.works_on | is_whole,
        pause_seconds=np.where(is_whole, pause_seconds, taken.pause_seconds),
    )


def way_back(
    on: Switches,
    kept: BoolArray,
    standby_usd: FloatArray | float,
    pause_seconds: FloatArray | float,
) -> Switches:
    """Return the changes after a look, where what was `kept` on standby costs `standby_usd`."""
    return Switches(
        ready_seconds=np.where(kept, 0.0, on.ready_seconds),
        new_share=np.where(kept, 0.0, on.new_share),
        boot_usd=np.where(kept, standby_usd, on.boot_usd),
        carried_usd=np.where(kept, 0.0, on.carried_usd),
        works_on=on.works_on | kept,
        pause_seconds=np.where(kept, pause_seconds, on.pause_seconds),
    )


def kept_on_standby(old: End, new: End, there: Switches) -> BoolArray:
    """Return where the `old` instances stand by while the `new` ones are measured."""
    kept: BoolArray = there.works_on & (old.offer != new.offer) & (old.network == new.network)
    return kept


def _end(at: Ground, which: int | IntArray) -> End:
    candidates, terms = at.candidates, at.candidates.terms
    sizes, checkpoint_bytes = candidates.sizes, at.switching.checkpoint_bytes
    offer = sizes.offer[which]
    return End(
        offer=offer,
        instances=sizes.instances[which],
        devices_used=sizes.devices_used[which],
        usd_per_second=candidates.usd_per_second[which],
        rate=candidates.rate[which],
        unit_usd_per_second=candidates.unit_usd_per_second[which],
        start_seconds=at.start_seconds[offer],
        billed_start_seconds=at.billed_start_seconds[offer],
        is_sure=terms.is_sure[offer],
        network=terms.network[offer],
        upload_usd=checkpoint_bytes * terms.upload_usd_per_byte[offer],
        download_usd=(
            checkpoint_bytes * terms.download_usd_per_byte[offer] * sizes.instances[which]
        ),
    )


def _fit_beside(at: Ground, source: IntArray, target: IntArray) -> BoolArray:
    """Whether all of `target` has room beside `source`, if everything else stays as it is."""
    candidates = at.candidates
    uses = candidates.uses[:, target] + candidates.uses[:, source]
    if candidates.held is not None:
        uses = uses - candidates.uses[:, [candidates.held]]
    return np.asarray(fits(uses, at.room).all(axis=0))


def cost_to_finish(
    at: Ground,
    value_of_time: float,
    work: float | FloatArray,
    limit_prices: FloatArray | None = None,
) -> FloatArray:
    """J of each candidate from what is held: $ for `work`, waiting included, (K, A).

    Boots and pauses, the work that the old instances do while the new ones boot, and the rest at
    the candidate's price of progress. With `limit_prices`, (R,), in $ per second of a unit, what
    is used of the limits is paid for too.
    """
    candidates = at.candidates
    taken = at.from_held(value_of_time)
    paid, boot_usd = candidates.usd_per_second, taken.boot_usd
    if limit_prices is not None:
        for_limits = limit_prices @ candidates.uses
        paid = paid + for_limits
        boot_usd = boot_usd + for_limits * taken.new_share * taken.ready_seconds
    fixed = boot_usd + standing_usd(taken, paid, value_of_time)
    price = (paid + value_of_time) * candidates.seconds_per_example
    if candidates.held is None:
        return fixed + work * price
    done = done_meanwhile(candidates.goodput[:, [candidates.held]], taken, work)
    return fixed + done * price[:, [candidates.held]] + (work - done) * price


def cost_by_way_of(
    at: Ground, value_of_time: float, work: float | FloatArray, ways: WaysOn
) -> FloatArray:
    """As `cost_to_finish`, of being measured at each candidate and going on from there, (K, A).

    Each draw takes the best of the ways.
    """
    candidates = at.candidates
    there = at.from_held(value_of_time)
    paid = candidates.usd_per_second
    price = (paid + value_of_time) * candidates.seconds_per_example
    begun = there.boot_usd + standing_usd(there, paid, value_of_time)
    before: FloatArray | float = 0.0
    if candidates.held is not None:
        before = done_meanwhile(candidates.goodput[:, [candidates.held]], there, work)
        begun = begun + before * price[:, [candidates.held]]
    left = work - before
    onward = price if ways.usd_per_example is None else ways.usd_per_example
    everywhere = np.arange(len(candidates))
    kept = np.zeros(len(candidates), dtype=np.bool_)
    if candidates.held is not None and at.may_stand_by:
        kept = kept_on_standby(_end(at, candidates.held), _end(at, everywhere), there)
    costs = at.switching
    least = np.full(candidates.goodput.shape, np.inf)
    for then in ways.to.tolist():
        on = switches(at, everywhere, np.full(len(candidates), then), value_of_time)
        if then == candidates.held:
            standby_usd = costs.measure_seconds * paid[then]
            on = way_back(on, kept, standby_usd, costs.pause_seconds)
        looked_seconds = costs.measure_seconds + np.where(on.works_on, on.ready_seconds, 0.0)
        tried = np.minimum(looked_seconds * candidates.goodput, left)
        fixed = begun + on.boot_usd + standing_usd(on, paid[then], value_of_time)
        cost = fixed + tried * price + (left - tried) * onward[:, [then]]
        least = np.minimum(least, cost)
    return least


def standing_usd(
    taken: Switches, usd_per_second: FloatArray | float, value_of_time: float | FloatArray
) -> FloatArray:
    """Pauses, and the waiting while nobody trains, (B,); boots apart."""
    idle_seconds = np.where(taken.works_on, 0.0, taken.ready_seconds)
    paused: FloatArray = taken.pause_seconds * (usd_per_second + value_of_time)
    return paused + idle_seconds * value_of_time


def done_meanwhile(
    goodput: FloatArray | float, taken: Switches, work: float | FloatArray
) -> FloatArray:
    """Useful examples that the old instances do while the new ones boot, (K, B).

    `goodput` is that of the old ones, (K, 1); of one number it is (B,).
    """
    seconds = np.where(taken.works_on, taken.ready_seconds, 0.0)
    return np.minimum(goodput * seconds, work)
