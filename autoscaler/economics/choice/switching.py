"""Cost of changing a job's allocation, and cost of the rest of the job afterwards.

While new instances boot the old ones train, so only the price of the boot is lost. If the limits
leave no room for both, or nothing is held, the job stands still meanwhile. Starts include the wait
for capacity. The age of spot instances and failed orders are not considered here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.economics.allocation.candidates import Candidates
from autoscaler.economics.pricing.standby import StandbyInstances
from autoscaler.economics.pricing.starts import billed_starts_seconds, starts_seconds
from autoscaler.economics.supply.supply import BoolArray, IntArray, fits
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Switches:
    """Time and price of changing to each of B allocations.

    Attributes:
        ready_seconds: time until the new instances can train, (B,).
        new_share: share of the allocation's instances that are new, (B,).
        boot_usd: price of the boot, with the transfer of a checkpoint, (B,).
        carried_usd: part of `boot_usd` for the transfer of a checkpoint, (B,).
        trains_during_boot: whether the old instances train during the boot, (B,); if not, they are
            released.
        pause_seconds: time without training that is paid at the new price, (B,).
    """

    ready_seconds: FloatArray
    new_share: FloatArray
    boot_usd: FloatArray
    carried_usd: FloatArray
    trains_during_boot: BoolArray
    pause_seconds: FloatArray

    @property
    def lost_seconds(self) -> FloatArray:
        """Seconds without training, (B,)."""
        return np.where(self.trains_during_boot, 0.0, self.ready_seconds) + self.pause_seconds


@dataclass(frozen=True, slots=True, eq=False)
class AllocationArrays:
    """Allocations before or after a change; arrays that broadcast with those of the other side.

    Attributes:
        offer: index of the offer.
        instances: number of instances.
        devices_used: devices used on each instance.
        usd_per_second: price with refills after reclaims.
        rate: useful examples a second.
        unit_usd_per_second: list price of one instance.
        start_seconds: from the order of an instance to its first step.
        billed_start_seconds: from its launch to its first step.
        is_sure: whether orders are expected to be filled at once.
        network: number of the network within which instances train together.
        upload_usd: price of sending a checkpoint from one instance.
        download_usd: price of fetching a checkpoint on all instances.
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
class SwitchContext:
    """Inputs for pricing one job's changes of allocation.

    Attributes:
        candidates: allocations that the job may hold.
        switching: its switching costs.
        room: room that the limits leave beside all instances held by all jobs, (R,).
        has_run: whether a start from nothing restores a checkpoint.
        standby: paused instances of the job besides the held ones; None if there are none.
        may_stand_by: whether held instances may pause while another kind is measured.
    """

    candidates: Candidates
    switching: SwitchingCosts
    room: FloatArray
    has_run: bool
    standby: StandbyInstances | None = None
    may_stand_by: bool = True

    @cached_property
    def start_seconds(self) -> FloatArray:
        """Seconds from the order of an instance of each offer to its first step, (O,)."""
        return starts_seconds(self.switching, self.candidates.offers)

    @cached_property
    def billed_start_seconds(self) -> FloatArray:
        """Seconds from the launch of an instance of each offer to its first step, (O,)."""
        return billed_starts_seconds(self.switching, self.candidates.offers)

    @cached_property
    def _from_held(self) -> dict[float | None, Switches]:
        return {}

    def from_held(self, value_of_time: float | None = None) -> Switches:
        """Return the changes from the held allocation to each candidate, (A,), cached."""
        if value_of_time not in self._from_held:
            all_candidates = np.arange(len(self.candidates))
            changes = switches(self, self.candidates.held, all_candidates, value_of_time)
            self._from_held[value_of_time] = changes
        return self._from_held[value_of_time]


def switches(
    at: SwitchContext,
    origin: int | IntArray | None,
    target: IntArray,
    value_of_time: float | None = None,
) -> Switches:
    """Return the changes from `origin` (None: nothing) to each `target`; both broadcast.

    With a value of time v, old instances are released at once if they cost too much during the
    boot. That is so if training on them meanwhile costs more than training later and restoring a
    checkpoint: ``boot * (p(a) - G(a) (p(b) + v) / G(b)) > restore * (p(b) + v)``. Here a is the
    old and b the new allocation, p the price in $ per second, and G the goodput. They are never
    released for an order that may not be filled.
    """
    costs, new = at.switching, _allocations_at(at, target)
    if origin is None:
        return from_nothing(new, costs.restore_seconds if at.has_run else 0.0)
    old = _allocations_at(at, origin)
    changes = between(
        old,
        new,
        RestartOverheads(costs.pause_seconds, costs.restore_seconds, costs.carry_seconds),
        _has_room_beside(at, *np.broadcast_arrays(origin, target)),
        value_of_time,
    )
    if at.standby is None or not isinstance(origin, int) or origin != at.candidates.held:
        return changes
    return with_standby(changes, new, at.standby, costs.pause_seconds)


@dataclass(frozen=True, slots=True, eq=False)
class FallbackAllocations:
    """Candidates to go on to after a measurement.

    Attributes:
        to: indices of W candidates, (W,).
        usd_per_example: $ per useful example of the rest, (K, A); None: the price of progress.
    """

    to: IntArray
    usd_per_example: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class RestartOverheads:
    """Seconds of pause at a change, of a restore, and of moving a checkpoint between networks."""

    pause_seconds: float | FloatArray
    restore_seconds: float | FloatArray
    carry_seconds: float | FloatArray


def from_nothing(new: AllocationArrays, pause_seconds: float | FloatArray) -> Switches:
    """Return starts of `new` from nothing; `pause_seconds` restore a checkpoint, or are 0."""
    carried_usd = np.where(np.asarray(pause_seconds) > 0.0, new.download_usd, 0.0)
    boot_usd = new.unit_usd_per_second * new.instances * new.billed_start_seconds
    return Switches(
        ready_seconds=new.start_seconds,
        new_share=np.ones(new.offer.shape),
        boot_usd=boot_usd + carried_usd,
        carried_usd=carried_usd,
        trains_during_boot=np.zeros(new.offer.shape, dtype=np.bool_),
        pause_seconds=np.broadcast_to(np.asarray(pause_seconds), new.offer.shape),
    )


def between(
    old: AllocationArrays,
    new: AllocationArrays,
    halts: RestartOverheads,
    fits_beside: BoolArray,
    value_of_time: float | FloatArray | None,
) -> Switches:
    """Return changes from `old` to `new`; `fits_beside`: the limits have room for both.

    In another network, new instances start from a checkpoint of the old ones.
    """
    transfer_usd = old.upload_usd + new.download_usd
    is_other_network = old.network != new.network
    is_worth_keeping: BoolArray = np.ones(1, dtype=np.bool_)
    if value_of_time is not None:
        paid = new.usd_per_second + value_of_time
        saved = new.start_seconds * (old.usd_per_second - old.rate * paid / new.rate)
        spared_usd = halts.restore_seconds * paid + transfer_usd
        is_worth_keeping = ~new.is_sure | (saved <= np.where(is_other_network, 0.0, spared_usd))
    same_offer = old.offer == new.offer
    kept_instances = np.where(same_offer, np.minimum(old.instances, new.instances), 0)
    new_instances = new.instances - kept_instances
    as_used = old.devices_used == new.devices_used
    is_same = same_offer & (old.instances == new.instances) & as_used
    trains_during_boot = same_offer | (fits_beside & is_worth_keeping)
    starts_again = ~trains_during_boot | (same_offer & ~as_used) | is_other_network
    pause = np.where(is_same, 0.0, halts.pause_seconds)
    pause = pause + np.where(is_other_network, halts.carry_seconds, 0.0)
    carried_usd = np.where(starts_again, transfer_usd, 0.0)
    return Switches(
        ready_seconds=np.where(new_instances > 0, new.start_seconds, 0.0),
        new_share=new_instances / new.instances,
        boot_usd=new.unit_usd_per_second * new_instances * new.billed_start_seconds + carried_usd,
        carried_usd=carried_usd,
        trains_during_boot=trains_during_boot,
        pause_seconds=pause + np.where(starts_again, halts.restore_seconds, 0.0),
    )


def with_standby(
    taken: Switches,
    new: AllocationArrays,
    standby: StandbyInstances,
    pause_seconds: float | FloatArray,
) -> Switches:
    """Return changes to `new` in which instances on standby need no boot."""
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
        trains_during_boot=taken.trains_during_boot | is_whole,
        pause_seconds=np.where(is_whole, pause_seconds, taken.pause_seconds),
    )


def way_back(
    on: Switches,
    kept: BoolArray,
    standby_usd: FloatArray | float,
    pause_seconds: FloatArray | float,
) -> Switches:
    """Return the changes after a measurement; `kept` ones cost `standby_usd` for no boot."""
    return Switches(
        ready_seconds=np.where(kept, 0.0, on.ready_seconds),
        new_share=np.where(kept, 0.0, on.new_share),
        boot_usd=np.where(kept, standby_usd, on.boot_usd),
        carried_usd=np.where(kept, 0.0, on.carried_usd),
        trains_during_boot=on.trains_during_boot | kept,
        pause_seconds=np.where(kept, pause_seconds, on.pause_seconds),
    )


def kept_on_standby(old: AllocationArrays, new: AllocationArrays, there: Switches) -> BoolArray:
    """Return where the old instances pause while the new ones are measured."""
    is_kept: BoolArray = (
        there.trains_during_boot & (old.offer != new.offer) & (old.network == new.network)
    )
    return is_kept


def _allocations_at(at: SwitchContext, index: int | IntArray) -> AllocationArrays:
    candidates, terms = at.candidates, at.candidates.terms
    sizes, checkpoint_bytes = candidates.sizes, at.switching.checkpoint_bytes
    offer = sizes.offer[index]
    return AllocationArrays(
        offer=offer,
        instances=sizes.instances[index],
        devices_used=sizes.devices_used[index],
        usd_per_second=candidates.usd_per_second[index],
        rate=candidates.rate[index],
        unit_usd_per_second=candidates.unit_usd_per_second[index],
        start_seconds=at.start_seconds[offer],
        billed_start_seconds=at.billed_start_seconds[offer],
        is_sure=terms.is_sure[offer],
        network=terms.network[offer],
        upload_usd=checkpoint_bytes * terms.upload_usd_per_byte[offer],
        download_usd=(
            checkpoint_bytes * terms.download_usd_per_byte[offer] * sizes.instances[index]
        ),
    )


def _has_room_beside(at: SwitchContext, source: IntArray, target: IntArray) -> BoolArray:
    """Return whether each target has room beside its source, with all else unchanged."""
    candidates = at.candidates
    uses = candidates.uses[:, target] + candidates.uses[:, source]
    if candidates.held is not None:
        uses = uses - candidates.uses[:, [candidates.held]]
    return np.asarray(fits(uses, at.room).all(axis=0))


def cost_to_finish(
    at: SwitchContext, value_of_time: float, work: float | FloatArray
) -> FloatArray:
    """Return J: $ for `work` on each candidate from the held one, waiting included, (K, A).

    ``J(b) = boots + pauses + W_a (p(a) + v) / G(a) + (W - W_a) (p(b) + v) / G(b)``.

    W is the work in useful examples. W_a is the part that the old instances a do during the boot.
    Price p and value of time v are in $ per second, goodput G in useful examples a second.
    """
    candidates = at.candidates
    changes = at.from_held(value_of_time)
    paid = candidates.usd_per_second
    fixed_usd = changes.boot_usd + standing_usd(changes, paid, value_of_time)
    price = (paid + value_of_time) * candidates.seconds_per_example
    if candidates.held is None:
        return fixed_usd + work * price
    done = done_meanwhile(candidates.goodput[:, [candidates.held]], changes, work)
    return fixed_usd + done * price[:, [candidates.held]] + (work - done) * price


def cost_via_measurement(
    at: SwitchContext, value_of_time: float, work: float | FloatArray, ways: FallbackAllocations
) -> FloatArray:
    """Return J of measuring at each candidate and then going on to the best way, (K, A).

    J is as in `cost_to_finish`. Each draw goes on to the cheapest of `ways`.
    """
    candidates = at.candidates
    first_changes = at.from_held(value_of_time)
    paid = candidates.usd_per_second
    price = (paid + value_of_time) * candidates.seconds_per_example
    begun_usd = first_changes.boot_usd + standing_usd(first_changes, paid, value_of_time)
    before: FloatArray | float = 0.0
    if candidates.held is not None:
        before = done_meanwhile(candidates.goodput[:, [candidates.held]], first_changes, work)
        begun_usd = begun_usd + before * price[:, [candidates.held]]
    work_left = work - before
    onward = price if ways.usd_per_example is None else ways.usd_per_example
    all_candidates = np.arange(len(candidates))
    is_kept = np.zeros(len(candidates), dtype=np.bool_)
    if candidates.held is not None and at.may_stand_by:
        is_kept = kept_on_standby(
            _allocations_at(at, candidates.held),
            _allocations_at(at, all_candidates),
            first_changes,
        )
    costs = at.switching
    least_cost = np.full(candidates.goodput.shape, np.inf)
    for way in ways.to.tolist():
        onward_changes = switches(at, all_candidates, np.full(len(candidates), way), value_of_time)
        if way == candidates.held:
            standby_usd = costs.measure_seconds * paid[way]
            onward_changes = way_back(onward_changes, is_kept, standby_usd, costs.pause_seconds)
        measured_seconds = costs.measure_seconds + np.where(
            onward_changes.trains_during_boot, onward_changes.ready_seconds, 0.0
        )
        tried_examples = np.minimum(measured_seconds * candidates.goodput, work_left)
        fixed_usd = (
            begun_usd
            + onward_changes.boot_usd
            + standing_usd(onward_changes, paid[way], value_of_time)
        )
        cost = fixed_usd + tried_examples * price + (work_left - tried_examples) * onward[:, [way]]
        least_cost = np.minimum(least_cost, cost)
    return least_cost


def standing_usd(
    taken: Switches, usd_per_second: FloatArray | float, value_of_time: float | FloatArray
) -> FloatArray:
    """Return $ of pauses, and of waiting while nothing trains, (B,), without boots."""
    idle_seconds = np.where(taken.trains_during_boot, 0.0, taken.ready_seconds)
    paused_usd: FloatArray = taken.pause_seconds * (usd_per_second + value_of_time)
    return paused_usd + idle_seconds * value_of_time


def done_meanwhile(
    goodput: FloatArray | float, taken: Switches, work: float | FloatArray
) -> FloatArray:
    """Return useful examples that old instances process during the boot, (K, B).

    `goodput` is that of the old instances, (K, 1); for a single number the result is (B,).
    """
    seconds = np.where(taken.trains_during_boot, taken.ready_seconds, 0.0)
    return np.minimum(goodput * seconds, work)
