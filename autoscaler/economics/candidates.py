"""Every allocation that one job might hold, with what it costs and what it earns."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, SwitchingCosts, ThroughputModel
from autoscaler.economics.ahead import pieces_ahead
from autoscaler.economics.carrying import carried_usd_per_second
from autoscaler.economics.keeping import Kept, Same
from autoscaler.economics.sizes import Sizes, permitted_sizes
from autoscaler.economics.spot import (
    goodput_with_reclaims,
    goodput_with_restarts,
    price_with_refills,
)
from autoscaler.economics.starts import billed_starts_seconds
from autoscaler.economics.supply import SECONDS_PER_HOUR, BoolArray, IntArray, Supply, Terms
from autoscaler.goodput.draws import noise_draws
from autoscaler.goodput.prediction import ThroughputDraws, throughput_draws
from autoscaler.goodput.throughput import FloatArray

# More devices than a job ever has.
_CODE = 1 << 32
# With the table of goodput of each job so much is kept in all, in tables of its size.
_COPIES = 3
_KEPT_BYTES = 200_000_000
_KEPT_TABLES_BYTES = 700_000_000
_KEPT_THROUGHPUT_BYTES = 100_000_000


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
        terms: those of the supply.
        sizes: A allocations of its offers.
        usd_per_second: with the refills of spot and the ways of checkpoints, (A,).
        goodput: useful examples a second, with the reclaims of spot, (K, A); above 0.
        measured: whether step times of that size were measured on that kind of device, (A,).
        allowed: (A,); False only for what is held and may not be held on.
        uses: of each limit, (R, A).
        held: index of what the job holds; None for nothing, or nothing that earns.
        ahead: what is known of the rest of the job beyond what is measured now.
    """

    terms: Terms
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

    @property
    def offers(self) -> tuple[Offer, ...]:
        """O offers in the order of their ids."""
        return self.terms.offers

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
        return self.terms.usd_per_second[self.sizes.offer]

    def only(self, kept: IntArray) -> Candidates:
        """Those of these increasing indices, what is held among them."""
        ahead = self.ahead
        if ahead is not None:
            ahead = Ahead(ahead.work, ahead.seconds_per_example[:, :, kept])
        return Candidates(
            terms=self.terms,
            sizes=self.sizes.take(kept),
            usd_per_second=self.usd_per_second[kept],
            goodput=self.goodput[:, kept],
            measured=self.measured[kept],
            allowed=self.allowed[kept],
            uses=self.uses[:, kept],
            held=None if self.held is None else int(np.searchsorted(kept, self.held)),
            ahead=ahead,
        )

    def offer_of(self, index: int) -> Offer:
        """The offer of one of them."""
        return self.offers[int(self.sizes.offer[index])]

    def index(self, allocation: Allocation | None) -> int | None:
        """Where that allocation stands."""
        offer = None if allocation is None else self.terms.index.get(allocation.offer)
        if allocation is None or offer is None:
            return None
        return self.sizes.index(offer, allocation.instances, allocation.devices_used)

    def allocation(self, index: int) -> Allocation:
        """One of them."""
        sizes = self.sizes
        return Allocation(
            self.offer_of(index).id, int(sizes.instances[index]), int(sizes.devices_used[index])
        )


_KEPT: Kept[Candidates] = Kept(_KEPT_BYTES)
_KEPT_TABLES: Kept[FloatArray] = Kept(_KEPT_TABLES_BYTES)
_KEPT_THROUGHPUT: Kept[ThroughputDraws] = Kept(_KEPT_THROUGHPUT_BYTES)


def candidates(job: JobSnapshot, supply: Supply) -> Candidates:
    """What the job might hold: within its bounds, what is available, and each limit by itself.

    An instance alone may use fewer of its devices than it has; several use all. An offer whose
    kind of device has no model is left out, and so is what earns nothing.

    Raises:
        ValueError: the job's models have different numbers of draws.
    """
    key = _basis(job, supply)
    every = _KEPT.get(key)
    if every is None:
        every = _candidates(job, supply)
        _KEPT.put(key, every, _COPIES * every.goodput.nbytes)
    ahead = _ahead(job, supply, every.sizes)
    return every if ahead is None else replace(every, ahead=ahead)


def _basis(job: JobSnapshot, supply: Supply) -> Hashable:
    """All that a job's candidates depend on, but for what is ahead."""
    return (
        supply.terms,
        supply.permitted(job.instances),
        job.instances,
        job.batch,
        job.noise,
        tuple((kind, Same(model)) for kind, model in sorted(job.models.items())),
        job.held,
        job.held_reclaims_per_hour,
        costs_in_candidates(job.switching),
    )


def costs_in_candidates(switching: SwitchingCosts) -> Hashable:
    """What of the costs of changing a job's candidates depend on: all but how changes last."""
    return (
        switching.pause_seconds,
        switching.restore_seconds,
        switching.checkpoint_seconds,
        switching.checkpoint_interval_seconds,
        switching.checkpoint_bytes,
        switching.carry_seconds,
        tuple(switching.start_seconds.items()),
    )


def _candidates(job: JobSnapshot, supply: Supply) -> Candidates:
    counts = {kind: len(model.draws) for kind, model in job.models.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"job {job.id}: its models differ in their number of draws: {counts}")
    sizes = permitted_sizes(job, supply)
    allowed = np.ones(len(sizes.offer), dtype=np.bool_)
    held = held_size(job, supply)
    if held is not None and sizes.index(*held) is None:
        sizes = sizes.and_one(*held)
        allowed = np.append(allowed, False)
    goodput, measured = _goodput(job, supply, sizes)
    earns = np.asarray((goodput > 0).all(axis=0))
    sizes = sizes.take(earns)
    return Candidates(
        terms=supply.terms,
        sizes=sizes,
        usd_per_second=_price(job, supply, sizes),
        goodput=goodput[:, earns],
        measured=measured[earns],
        allowed=allowed[earns],
        uses=supply.unit_uses[:, sizes.offer] * sizes.instances,
        held=None if held is None else sizes.index(*held),
    )


def _ahead(job: JobSnapshot, supply: Supply, sizes: Sizes) -> Ahead | None:
    pieces = pieces_ahead(job)
    if not pieces or not len(sizes.offer):
        return None
    goodput = [_goodput(replace(job, noise=piece.noise), supply, sizes)[0] for piece in pieces]
    return Ahead(np.array([piece.work for piece in pieces]), 1.0 / np.array(goodput))


def held_size(job: JobSnapshot, supply: Supply) -> tuple[int, int, int] | None:
    """What is held as one of `Sizes`; None if nothing, or if its kind of device has no model."""
    offer = None if job.held is None else supply.offer(job.held.offer)
    if job.held is None or offer is None or offer.device_kind not in job.models:
        return None
    return supply.terms.index[offer.id], job.held.instances, job.held.devices_used


def _price(job: JobSnapshot, supply: Supply, sizes: Sizes) -> FloatArray:
    unit = supply.terms.usd_per_second
    count = sizes.instances.astype(np.float64)
    reclaims = _reclaims(job, supply, sizes.offer, sizes.instances)
    refill = billed_starts_seconds(job.switching, supply.offers)
    price = price_with_refills(unit[sizes.offer], count, reclaims, refill[sizes.offer])
    return price + carried_usd_per_second(
        job.switching, supply.terms, sizes, reclaims, job.instances.minimum
    )


def _reclaims(
    job: JobSnapshot, supply: Supply, offer: IntArray, instances: IntArray
) -> FloatArray:
    """Reclaims a second of all instances of each size together, (A,).

    What is held has the hazard of its age: to replace it by new ones costs the difference.
    """
    per_hour = supply.terms.reclaims_per_hour[offer]
    reclaims: FloatArray = per_hour * instances
    held = None if job.held is None else supply.offer(job.held.offer)
    if held is not None and job.held is not None and job.held_reclaims_per_hour is not None:
        of_held = offer == supply.terms.index[held.id]
        kept = np.where(of_held, np.minimum(instances, job.held.instances), 0)
        reclaims = reclaims + kept * (job.held_reclaims_per_hour - per_hour)
    return reclaims / SECONDS_PER_HOUR


def _goodput(job: JobSnapshot, supply: Supply, sizes: Sizes) -> tuple[FloatArray, BoolArray]:
    """Goodput with reclaims, (K, A), and whether it was measured, (A,)."""
    draws = max((len(model.draws) for model in job.models.values()), default=1)
    goodput = np.zeros((draws, len(sizes.offer)))
    measured = np.zeros(len(sizes.offer), dtype=np.bool_)
    for kind, model in sorted(job.models.items()):
        if kind not in supply.terms.of_kind:
            continue
        which = supply.terms.of_kind[kind][sizes.offer]
        if which.any():
            goodput[:, which], measured[which] = _of_kind(job, supply, model, sizes.take(which))
    return goodput, measured


def _of_kind(
    job: JobSnapshot, supply: Supply, model: ThroughputModel, sizes: Sizes
) -> tuple[FloatArray, BoolArray]:
    less = Sizes(sizes.offer, sizes.instances - 1, sizes.devices_used)
    full_codes, less_codes = _codes(sizes), _codes(less)
    distinct, position = _distinct(full_codes.tobytes() + less_codes.tobytes())
    table = _table(model, job.noise, job.batch, distinct)
    of_full = table[:, position[: len(full_codes)]]
    of_less = table[:, position[len(full_codes) :]]
    of_less = np.where(less.instances >= job.instances.minimum, of_less, 0.0)
    known = {instances * _CODE + devices for instances, devices in model.measured}
    measured = np.array([code in known for code in full_codes.tolist()], dtype=np.bool_)
    return _with_reclaims(job, supply, less, of_full, of_less), measured


def _with_reclaims(
    job: JobSnapshot, supply: Supply, less: Sizes, of_full: FloatArray, of_less: FloatArray
) -> FloatArray:
    full = less.instances + 1
    reclaims = _reclaims(job, supply, less.offer, full)
    if not reclaims.any():
        return of_full
    refill = billed_starts_seconds(job.switching, supply.offers)[less.offer]
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


def _table(
    model: ThroughputModel, noise: NoiseScale | None, batch: BatchBounds, codes: IntArray
) -> FloatArray:
    """Goodput (K, S) of sizes by their codes, kept: it moves only on measurements.

    No instance at all has a goodput of 0.
    """
    key = Same(model), noise, batch, codes.tobytes()
    kept = _KEPT_TABLES.get(key)
    if kept is not None:
        return kept
    noise_examples = noise_draws(noise, batch.initial, len(model.draws))
    table = _throughput(model, batch, codes).goodput(noise_examples)
    table.setflags(write=False)
    _KEPT_TABLES.put(key, table, table.nbytes)
    return table


def _throughput(model: ThroughputModel, batch: BatchBounds, codes: IntArray) -> ThroughputDraws:
    """What `_table` needs beside the noise scale, kept: a job tells of that with each report."""
    key = Same(model), batch, codes.tobytes()
    kept = _KEPT_THROUGHPUT.get(key)
    if kept is not None:
        return kept
    found = throughput_draws(model, batch, *np.divmod(codes, _CODE))
    _KEPT_THROUGHPUT.put(key, found, found.nbytes)
    return found


@lru_cache(maxsize=1024)
def _distinct(codes: bytes) -> tuple[IntArray, IntArray]:
    """The different codes in their order, and where each stands among them."""
    found = np.unique(np.frombuffer(codes, dtype=np.int64), return_inverse=True)
    return found[0], found[1]
