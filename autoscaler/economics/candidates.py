"""Every allocation that one job might hold, with what it costs and what it earns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, SwitchingCosts, ThroughputModel
from autoscaler.economics.ahead import pieces_ahead
from autoscaler.economics.spot import (
    goodput_with_reclaims,
    goodput_with_restarts,
    price_with_refills,
)
from autoscaler.economics.supply import SECONDS_PER_HOUR, BoolArray, IntArray, Supply
from autoscaler.goodput.draws import noise_draws
from autoscaler.goodput.prediction import goodput_draws
from autoscaler.goodput.throughput import FloatArray

# More devices than a job ever has.
_CODE = 1 << 32


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """A allocations as arrays (A,): the index of the offer, instances, devices used of each."""

    offer: IntArray
    instances: IntArray
    devices_used: IntArray

    def take(self, which: BoolArray) -> Sizes:
        """Those of them where `which`, (A,), is true."""
        return Sizes(self.offer[which], self.instances[which], self.devices_used[which])

    def index(self, offer: int, instances: int, devices_used: int) -> int | None:
        """Where that allocation stands."""
        alike = (self.offer == offer) & (self.instances == instances)
        (found,) = np.nonzero(alike & (self.devices_used == devices_used))
        return int(found[0]) if len(found) else None


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """S pieces of the remaining work, in useful examples, (S,), and what each would take.

    `seconds_per_example` is (S, K, A).
    """

    work: FloatArray
    seconds_per_example: FloatArray

    @property
    def mean_seconds_per_example(self) -> FloatArray:
        """Over all pieces, (K, A)."""
        share = self.work / self.work.sum()
        mean: FloatArray = np.tensordot(share, self.seconds_per_example, axes=1)
        return mean


@dataclass(frozen=True, eq=False)
class Candidates:
    """A allocations of one job, and K equally likely draws of what each earns.

    Attributes:
        offers: those of the supply.
        sizes: A allocations of them.
        usd_per_second: with the refills of spot, (A,).
        goodput: useful examples a second, with the reclaims of spot, (K, A); above 0.
        measured: whether step times of that size were measured on that kind of device, (A,).
        allowed: (A,); False only for what is held and may not be held on.
        uses: of each limit, (R, A).
        held: index of what the job holds; None for nothing, or nothing that earns.
        ahead: what is known of the rest of the job beyond what is measured now.
    """

    offers: tuple[Offer, ...]
    sizes: Sizes
    usd_per_second: FloatArray
    goodput: FloatArray
    measured: BoolArray
    allowed: BoolArray
    uses: FloatArray
    held: int | None
    ahead: Ahead | None = None

    def __len__(self) -> int:
        return len(self.usd_per_second)

    @cached_property
    def seconds_per_example(self) -> FloatArray:
        """Over the rest of the job, as far as it is known, (K, A)."""
        if self.ahead is not None:
            return self.ahead.mean_seconds_per_example
        return 1.0 / self.goodput

    @cached_property
    def rate(self) -> FloatArray:
        """Useful examples a second by the mean time that one takes, (A,)."""
        rate: FloatArray = 1.0 / self.seconds_per_example.mean(axis=0)
        return rate

    @cached_property
    def unit_usd_per_second(self) -> FloatArray:
        """The plain price of one instance, (A,)."""
        prices = np.array([offer.usd_per_second for offer in self.offers])
        return prices[self.sizes.offer]

    def offer_of(self, index: int) -> Offer:
        """The offer of one of them."""
        return self.offers[int(self.sizes.offer[index])]

    def index(self, allocation: Allocation | None) -> int | None:
        """Where that allocation stands."""
        ids = [offer.id for offer in self.offers]
        if allocation is None or allocation.offer not in ids:
            return None
        offer = ids.index(allocation.offer)
        return self.sizes.index(offer, allocation.instances, allocation.devices_used)

    def allocation(self, index: int) -> Allocation:
        """One of them."""
        sizes = self.sizes
        return Allocation(
            self.offer_of(index).id, int(sizes.instances[index]), int(sizes.devices_used[index])
        )


def candidates(job: JobSnapshot, supply: Supply) -> Candidates:
    """What the job might hold: within its bounds, what is available, and each limit by itself.

    An instance alone may use fewer of its devices than it has; several use all. An offer whose
    kind of device has no model is left out, and so is what earns nothing.

    Raises:
        ValueError: the job's models have different numbers of draws.
    """
    counts = {kind: len(model.draws) for kind, model in job.models.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"job {job.id}: its models differ in their number of draws: {counts}")
    sizes = _permitted_sizes(job, supply)
    allowed = np.ones(len(sizes.offer), dtype=np.bool_)
    held = _held(job, supply)
    if held is not None and sizes.index(*held) is None:
        sizes = _and_held(sizes, held)
        allowed = np.append(allowed, False)
    goodput, measured = _goodput(job, supply, sizes)
    earns = np.asarray((goodput > 0).all(axis=0))
    sizes = sizes.take(earns)
    return Candidates(
        offers=supply.offers,
        sizes=sizes,
        usd_per_second=_price(job, supply, sizes),
        goodput=goodput[:, earns],
        measured=measured[earns],
        allowed=allowed[earns],
        uses=supply.unit_uses[:, sizes.offer] * sizes.instances,
        held=None if held is None else sizes.index(*held),
        ahead=_ahead(job, supply, sizes),
    )


def _ahead(job: JobSnapshot, supply: Supply, sizes: Sizes) -> Ahead | None:
    pieces = pieces_ahead(job)
    if not pieces or not len(sizes.offer):
        return None
    goodput = [_goodput(replace(job, noise=piece.noise), supply, sizes)[0] for piece in pieces]
    return Ahead(np.array([piece.work for piece in pieces]), 1.0 / np.array(goodput))


def start_seconds(switching: SwitchingCosts, offer: Offer) -> float:
    """From the order of an instance to its first step, as long as it waits for capacity too."""
    return offer.fill_seconds + billed_start_seconds(switching, offer)


def billed_start_seconds(switching: SwitchingCosts, offer: Offer) -> float:
    """From the launch of an instance to its first step: as measured, or as the offer says."""
    return switching.start_seconds.get(offer.id, offer.boot_seconds)


def _held(job: JobSnapshot, supply: Supply) -> tuple[int, int, int] | None:
    """What is held as one of `Sizes`; None if nothing, or if its kind of device has no model."""
    offer = None if job.held is None else supply.offer(job.held.offer)
    if job.held is None or offer is None or offer.device_kind not in job.models:
        return None
    return supply.offers.index(offer), job.held.instances, job.held.devices_used


def _permitted_sizes(job: JobSnapshot, supply: Supply) -> Sizes:
    """All sizes that the job may hold, each offer's together, the smallest first."""
    permitted = [
        index
        for index in supply.permitted(job.instances)
        if supply.offers[index].device_kind in job.models
    ]
    offer = np.array(permitted, dtype=np.int64)
    least, most = max(job.instances.minimum, 1), _most_instances(job, supply, offer)
    devices = np.array([each.devices for each in supply.offers], dtype=np.int64)[offer]
    alone = np.where((least == 1) & (most >= 1), devices, 0)
    several = np.maximum(most - max(least, 2) + 1, 0)
    rows = alone + several
    row = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    alone, devices = np.repeat(alone, rows), np.repeat(devices, rows)
    is_alone = row < alone
    return Sizes(
        offer=np.repeat(offer, rows),
        instances=np.where(is_alone, 1, row - alone + max(least, 2)),
        devices_used=np.where(is_alone, row + 1, devices),
    )


def _most_instances(job: JobSnapshot, supply: Supply, offer: IntArray) -> IntArray:
    """How many of each offer the job may hold if nobody else held anything."""
    most = np.full(len(offer), job.instances.maximum, dtype=np.float64)
    for position, index in enumerate(offer.tolist()):
        if supply.offers[index].id in supply.unavailable:
            is_held = job.held is not None and job.held.offer == supply.offers[index].id
            most[position] = min(most[position], job.held.instances if is_held and job.held else 0)
    uses = supply.unit_uses[:, offer]
    room = np.maximum(supply.maximum, 0.0)[:, None] + 1e-9
    bearable = np.where(uses > 0, room / np.where(uses > 0, uses, 1.0), np.inf)
    count: IntArray = np.minimum(most, bearable.min(axis=0, initial=np.inf)).astype(np.int64)
    return count


def _and_held(sizes: Sizes, held: tuple[int, int, int]) -> Sizes:
    columns = (sizes.offer, sizes.instances, sizes.devices_used)
    return Sizes(*(np.append(column, own) for column, own in zip(columns, held, strict=True)))


def _price(job: JobSnapshot, supply: Supply, sizes: Sizes) -> FloatArray:
    unit = np.array([offer.usd_per_second for offer in supply.offers])
    count = sizes.instances.astype(np.float64)
    reclaims = _reclaims(job, supply, sizes.offer, sizes.instances)
    refill = _refill_seconds(job, supply)
    return price_with_refills(unit[sizes.offer], count, reclaims, refill[sizes.offer])


def _refill_seconds(job: JobSnapshot, supply: Supply) -> FloatArray:
    """From a reclaim until another instance trains, (O,): it is ordered where there is room."""
    return np.array([billed_start_seconds(job.switching, offer) for offer in supply.offers])


def _reclaims(
    job: JobSnapshot, supply: Supply, offer: IntArray, instances: IntArray
) -> FloatArray:
    """Reclaims a second of all instances of each size together, (A,).

    What is held has the hazard of its age: to replace it by new ones costs the difference.
    """
    per_hour = np.array([each.reclaims_per_hour for each in supply.offers])[offer]
    reclaims: FloatArray = per_hour * instances
    held = None if job.held is None else supply.offer(job.held.offer)
    if held is not None and job.held is not None and job.held_reclaims_per_hour is not None:
        of_held = offer == supply.offers.index(held)
        kept = np.where(of_held, np.minimum(instances, job.held.instances), 0)
        reclaims = reclaims + kept * (job.held_reclaims_per_hour - per_hour)
    return reclaims / SECONDS_PER_HOUR


def _goodput(job: JobSnapshot, supply: Supply, sizes: Sizes) -> tuple[FloatArray, BoolArray]:
    """Goodput with reclaims, (K, A), and whether it was measured, (A,)."""
    draws = max((len(model.draws) for model in job.models.values()), default=1)
    goodput = np.zeros((draws, len(sizes.offer)))
    measured = np.zeros(len(sizes.offer), dtype=np.bool_)
    kinds = np.array([offer.device_kind for offer in supply.offers], dtype=object)
    for kind, model in sorted(job.models.items()):
        (of_kind,) = np.nonzero(kinds[sizes.offer] == kind)
        if len(of_kind):
            which = np.zeros(len(sizes.offer), dtype=np.bool_)
            which[of_kind] = True
            goodput[:, which], measured[which] = _of_kind(job, supply, model, sizes.take(which))
    return goodput, measured


def _of_kind(
    job: JobSnapshot, supply: Supply, model: ThroughputModel, sizes: Sizes
) -> tuple[FloatArray, BoolArray]:
    less = Sizes(sizes.offer, sizes.instances - 1, sizes.devices_used)
    full_codes, less_codes = _codes(sizes), _codes(less)
    distinct, position = np.unique(np.concatenate([full_codes, less_codes]), return_inverse=True)
    table = _table(model, job.noise, job.batch, tuple(distinct.tolist()))
    of_full = table[:, position[: len(full_codes)]]
    of_less = table[:, position[len(full_codes) :]]
    of_less = np.where(less.instances >= job.instances.minimum, of_less, 0.0)
    known = [instances * _CODE + devices for instances, devices in model.measured]
    measured = np.isin(full_codes, np.array(known, dtype=np.int64))
    return _with_reclaims(job, supply, less, of_full, of_less), measured


def _with_reclaims(
    job: JobSnapshot, supply: Supply, less: Sizes, of_full: FloatArray, of_less: FloatArray
) -> FloatArray:
    full = less.instances + 1
    reclaims = _reclaims(job, supply, less.offer, full)
    if not reclaims.any():
        return of_full
    refill = _refill_seconds(job, supply)[less.offer]
    costs = job.switching
    mean = goodput_with_reclaims(
        of_full, of_less, reclaims, refill, np.full_like(refill, costs.pause_seconds)
    )
    starts_again = less.instances < job.instances.minimum
    mean[:, starts_again] = goodput_with_restarts(
        of_full[:, starts_again],
        reclaims[starts_again],
        refill[starts_again] + costs.restore_seconds,
        costs.checkpoint_seconds,
        costs.checkpoint_interval_seconds,
    )
    return mean


def _codes(sizes: Sizes) -> IntArray:
    """One number for each pair of instances and devices in all."""
    codes: IntArray = sizes.instances * (_CODE + sizes.devices_used)
    return codes


@lru_cache(maxsize=4096)
def _table(
    model: ThroughputModel, noise: NoiseScale | None, batch: BatchBounds, codes: tuple[int, ...]
) -> FloatArray:
    """Goodput (K, S) of sizes by their codes, kept: it moves only on measurements.

    No instance at all has a goodput of 0.
    """
    instances, devices = np.divmod(np.array(codes, dtype=np.int64), _CODE)
    noise_examples = noise_draws(noise, batch.initial, len(model.draws))
    table = goodput_draws(model, noise_examples, batch, instances, devices)
    table.setflags(write=False)
    return table
