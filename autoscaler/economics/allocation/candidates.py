"""Candidates: every allocation that one job might hold, with its price and goodput."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot, SwitchingCosts, ThroughputModel
from autoscaler.economics.allocation.predicted_pieces import predicted_pieces
from autoscaler.economics.pricing.spot import (
    goodput_with_reclaims,
    goodput_with_restarts,
    price_with_refills,
)
from autoscaler.economics.pricing.starts import billed_starts_seconds
from autoscaler.economics.pricing.transfers import reclaims_of, transfer_usd_per_second
from autoscaler.economics.supply.caches import CacheSection, IdentityKey, PlanningCache
from autoscaler.economics.supply.sizes import Sizes, permitted_sizes
from autoscaler.economics.supply.supply import (
    SECONDS_PER_HOUR,
    BoolArray,
    IntArray,
    MarketTerms,
    Supply,
)
from autoscaler.goodput.draws import noise_draws
from autoscaler.goodput.prediction import ThroughputDraws, throughput_draws
from autoscaler.goodput.throughput import FloatArray

# Base of the codes of (instances, devices): more devices than a job ever has.
_CODE = 1 << 32
# Size of one job's cached candidates, in multiples of its table of goodput.
_COPIES = 3
# Cached candidates of jobs, tables of goodput and draws of throughput.
_CANDIDATES: CacheSection[Candidates] = CacheSection(200_000_000)
_GOODPUT: CacheSection[FloatArray] = CacheSection(700_000_000)
_THROUGHPUT: CacheSection[ThroughputDraws] = CacheSection(100_000_000)


@dataclass(frozen=True, slots=True, eq=False)
class PredictedPieces:
    """S pieces of the remaining work, with the seconds per useful example in each piece.

    Attributes:
        work: useful examples of each piece, (S,).
        seconds_per_example: for K draws and A candidates, (S, K, A).
    """

    work: FloatArray
    seconds_per_example: FloatArray

    @property
    def mean_seconds_per_example(self) -> FloatArray:
        """Seconds per useful example over all pieces, weighted by work, (K, A)."""
        share = self.work / self.work.sum()
        mean: FloatArray = np.tensordot(share, self.seconds_per_example, axes=1)
        return mean


@dataclass(frozen=True, eq=False)
class Candidates:
    """A allocations of one job, and K equally likely draws of the goodput of each.

    R is the number of limits.

    Attributes:
        terms: offers and limits of the supply.
        sizes: the A allocations.
        usd_per_second: price with refills after reclaims and transfers of checkpoints, (A,).
        goodput: useful examples a second, reduced by reclaims, above 0, (K, A).
        measured: whether that size was measured on that kind of device, (A,).
        allowed: whether the job may hold it, (A,); False only for held sizes out of bounds.
        uses: use of each limit, in the limit's unit, (R, A).
        held: index of the held allocation; None if nothing is held, or it has no goodput.
        ahead: predictions for the rest of the job; None if there are none.
    """

    terms: MarketTerms
    sizes: Sizes
    usd_per_second: FloatArray
    goodput: FloatArray
    measured: BoolArray
    allowed: BoolArray
    uses: FloatArray
    held: int | None
    ahead: PredictedPieces | None = None

    def __len__(self) -> int:
        return len(self.usd_per_second)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """O offers, sorted by id."""
        return self.terms.offers

    @cached_property
    def seconds_per_example(self) -> FloatArray:
        """Seconds per useful example over the rest of the job, (K, A)."""
        if self.ahead is not None:
            return self.ahead.mean_seconds_per_example
        return 1.0 / self.goodput

    @cached_property
    def rate(self) -> FloatArray:
        """Useful examples a second: inverse of the mean seconds per example over draws, (A,)."""
        rate: FloatArray = 1.0 / self.seconds_per_example.mean(axis=0)
        return rate

    @cached_property
    def unit_usd_per_second(self) -> FloatArray:
        """List price of one instance of each candidate's offer, $ per second, (A,)."""
        return self.terms.usd_per_second[self.sizes.offer]

    def only(self, kept: IntArray) -> Candidates:
        """Return the candidates at increasing indices, which include the held one."""
        ahead = self.ahead
        if ahead is not None:
            ahead = PredictedPieces(ahead.work, ahead.seconds_per_example[:, :, kept])
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
        """Return the offer of one candidate."""
        return self.offers[int(self.sizes.offer[index])]

    def index(self, allocation: Allocation | None) -> int | None:
        """Return the index of an allocation; None if it is no candidate."""
        offer = None if allocation is None else self.terms.index.get(allocation.offer)
        if allocation is None or offer is None:
            return None
        return self.sizes.index(offer, allocation.instances, allocation.devices_used)

    def allocation(self, index: int) -> Allocation:
        """Return one candidate as an allocation."""
        sizes = self.sizes
        return Allocation(
            self.offer_of(index).id, int(sizes.instances[index]), int(sizes.devices_used[index])
        )


def candidates(job: JobSnapshot, supply: Supply) -> Candidates:
    """Return every allocation that the job might hold, with price and goodput.

    A candidate is within the job's bounds, is available, and fits each limit if the job is alone.
    A single instance may use fewer devices than it has; several instances use all. Offers without
    a throughput model and sizes without goodput are left out.

    Raises:
        ValueError: the job's models have different numbers of draws.
    """
    key, cache = _candidates_key(job, supply), supply.cache.of(_CANDIDATES)
    found_candidates = cache.get(key)
    if found_candidates is None:
        found_candidates = _candidates(job, supply)
        cache.put(key, found_candidates, _COPIES * found_candidates.goodput.nbytes)
    ahead = _ahead(job, supply, found_candidates.sizes)
    return found_candidates if ahead is None else replace(found_candidates, ahead=ahead)


def _candidates_key(job: JobSnapshot, supply: Supply) -> Hashable:
    """Return the cache key of a job's candidates: all their inputs except predictions."""
    return (
        supply.terms,
        supply.permitted(job.instances),
        job.instances,
        job.batch,
        job.noise,
        tuple((kind, IdentityKey(model)) for kind, model in sorted(job.models.items())),
        job.held,
        job.held_reclaims_per_hour,
        costs_in_candidates(job.switching),
        job.parallelism.shard,
    )


def costs_in_candidates(switching: SwitchingCosts) -> Hashable:
    """Return the switching costs that enter a job's candidates, as a key.

    All count except `dwell_seconds`, `measure_seconds` and `fill_seconds`.
    """
    return (
        switching.pause_seconds,
        switching.loss_seconds,
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
        sizes = sizes.with_size(*held)
        allowed = np.append(allowed, False)
    goodput, measured = _goodput(job, supply, sizes)
    earns = np.asarray((goodput > 0).all(axis=0))
    sizes = sizes.take(earns)
    return Candidates(
        terms=supply.terms,
        sizes=sizes,
        usd_per_second=_usd_per_second(job, supply, sizes),
        goodput=goodput[:, earns],
        measured=measured[earns],
        allowed=allowed[earns],
        uses=supply.unit_uses[:, sizes.offer] * sizes.instances,
        held=None if held is None else sizes.index(*held),
    )


def _ahead(job: JobSnapshot, supply: Supply, sizes: Sizes) -> PredictedPieces | None:
    pieces = predicted_pieces(job)
    if not pieces or not len(sizes.offer):
        return None
    goodput = [_goodput(replace(job, noise=piece.noise), supply, sizes)[0] for piece in pieces]
    return PredictedPieces(np.array([piece.work for piece in pieces]), 1.0 / np.array(goodput))


def held_size(job: JobSnapshot, supply: Supply) -> tuple[int, int, int] | None:
    """Return the held (offer index, instances, devices used) of a job.

    None if the job holds nothing, or if its kind of device has no model.
    """
    offer = None if job.held is None else supply.offer(job.held.offer)
    if job.held is None or offer is None or offer.device_kind not in job.models:
        return None
    return supply.terms.index[offer.id], job.held.instances, job.held.devices_used


def _usd_per_second(job: JobSnapshot, supply: Supply, sizes: Sizes) -> FloatArray:
    unit = supply.terms.usd_per_second
    count = sizes.instances.astype(np.float64)
    reclaims = _reclaims_per_second(job, supply, sizes.offer, sizes.instances)
    refill = billed_starts_seconds(job.switching, supply.offers)
    losses = reclaims_of(sizes, reclaims, job.parallelism.shard, job.instances.minimum)
    price = price_with_refills(
        unit[sizes.offer], count, reclaims, refill[sizes.offer], losses.lost_together
    )
    return price + transfer_usd_per_second(job.switching, supply.terms, sizes, losses)


def _reclaims_per_second(
    job: JobSnapshot, supply: Supply, offer: IntArray, instances: IntArray
) -> FloatArray:
    """Return reclaims a second over all instances of each size together, (A,).

    Held instances have the hazard of their age; additional ones that of new instances.
    """
    per_hour = supply.terms.reclaims_per_hour[offer]
    reclaims: FloatArray = per_hour * instances
    held = None if job.held is None else supply.offer(job.held.offer)
    if held is not None and job.held is not None and job.held_reclaims_per_hour is not None:
        of_held = offer == supply.terms.index[held.id]
        kept_instances = np.where(of_held, np.minimum(instances, job.held.instances), 0)
        reclaims = reclaims + kept_instances * (job.held_reclaims_per_hour - per_hour)
    return reclaims / SECONDS_PER_HOUR


def _goodput(job: JobSnapshot, supply: Supply, sizes: Sizes) -> tuple[FloatArray, BoolArray]:
    """Return goodput reduced by reclaims, (K, A), and whether it was measured, (A,)."""
    draws = max((len(model.draws) for model in job.models.values()), default=1)
    goodput = np.zeros((draws, len(sizes.offer)))
    measured = np.zeros(len(sizes.offer), dtype=np.bool_)
    for kind, model in sorted(job.models.items()):
        if kind not in supply.terms.of_kind:
            continue
        is_of_kind = supply.terms.of_kind[kind][sizes.offer]
        if is_of_kind.any():
            goodput[:, is_of_kind], measured[is_of_kind] = _goodput_of_kind(
                job, supply, model, sizes.take(is_of_kind)
            )
    return goodput, measured


def _goodput_of_kind(
    job: JobSnapshot, supply: Supply, model: ThroughputModel, sizes: Sizes
) -> tuple[FloatArray, BoolArray]:
    left_instances = np.maximum(sizes.instances - sizes.gangs(job.parallelism.shard), 0)
    sizes_left = Sizes(sizes.offer, left_instances, sizes.devices_used)
    codes, codes_left = _size_codes(sizes), _size_codes(sizes_left)
    unique, position = _unique_codes(codes.tobytes() + codes_left.tobytes())
    table = _goodput_of_codes(model, job.noise, job.batch, unique, supply.cache)
    goodput = table[:, position[: len(codes)]]
    goodput_left = table[:, position[len(codes) :]]
    goodput_left = np.where(left_instances >= job.instances.minimum, goodput_left, 0.0)
    measured_codes = {instances * _CODE + devices for instances, devices in model.measured}
    measured = np.array([code in measured_codes for code in codes.tolist()], dtype=np.bool_)
    return _reduced_by_reclaims(job, supply, sizes, goodput, goodput_left), measured


def _reduced_by_reclaims(
    job: JobSnapshot,
    supply: Supply,
    sizes: Sizes,
    goodput: FloatArray,
    goodput_left: FloatArray,
) -> FloatArray:
    """Return goodput with reclaims; `goodput_left` is that after the loss of one gang, (K, A)."""
    reclaims = _reclaims_per_second(job, supply, sizes.offer, sizes.instances)
    if not reclaims.any():
        return goodput
    refill = billed_starts_seconds(job.switching, supply.offers)[sizes.offer]
    costs = job.switching
    mean = goodput_with_reclaims(
        goodput, goodput_left, reclaims, refill, np.full_like(refill, costs.reclaim_seconds)
    )
    losses = reclaims_of(sizes, reclaims, job.parallelism.shard, job.instances.minimum)
    starts_again = losses.starts_again
    mean[:, starts_again] = goodput_with_restarts(
        goodput[:, starts_again],
        reclaims[starts_again],
        refill[starts_again] + costs.restore_seconds,
        costs.checkpoint_seconds,
        costs.checkpoint_interval_seconds,
    )
    return mean


def _size_codes(sizes: Sizes) -> IntArray:
    """Return one number for each pair of instances and total devices."""
    codes: IntArray = sizes.instances * (_CODE + sizes.devices_used)
    return codes


def _goodput_of_codes(
    model: ThroughputModel,
    noise: NoiseScale | None,
    batch: BatchBounds,
    codes: IntArray,
    cache: PlanningCache,
) -> FloatArray:
    """Return the cached goodput of S sizes given by their codes, (K, S); 0 for no instances."""
    key = IdentityKey(model), noise, batch, codes.tobytes()
    cached = cache.of(_GOODPUT).get(key)
    if cached is not None:
        return cached
    noise_examples = noise_draws(noise, batch.initial, len(model.draws))
    table = _throughput(model, batch, codes, cache).goodput(noise_examples)
    table.setflags(write=False)
    cache.of(_GOODPUT).put(key, table, table.nbytes)
    return table


def _throughput(
    model: ThroughputModel, batch: BatchBounds, codes: IntArray, cache: PlanningCache
) -> ThroughputDraws:
    """Return the cached throughput draws of sizes, which do not depend on the noise scale."""
    key = IdentityKey(model), batch, codes.tobytes()
    cached = cache.of(_THROUGHPUT).get(key)
    if cached is not None:
        return cached
    draws = throughput_draws(model, batch, *np.divmod(codes, _CODE))
    cache.of(_THROUGHPUT).put(key, draws, draws.nbytes)
    return draws


@lru_cache(maxsize=1024)
def _unique_codes(codes: bytes) -> tuple[IntArray, IntArray]:
    """Return the distinct codes in order, and the position of each code among them."""
    result = np.unique(np.frombuffer(codes, dtype=np.int64), return_inverse=True)
    return result[0], result[1]
