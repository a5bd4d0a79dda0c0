"""Offers that can hold a job's model, by the memory of their devices and by whole gangs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import SpecError
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import InstanceBounds, JobRecord, JobSpec, ParallelismSpec
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import MemoryPeak
from autoscaler.domain.shards import Unfit, UnfitOffer
from autoscaler.goodput.device_memory import MemoryModel, declared_memory, measured_memory
from autoscaler.market.device_kinds import UnknownDeviceKind, device_kind

# Largest shard that is proposed or chosen automatically.
_MOST_DEVICES = 1024


def memory_of(spec: JobSpec, peaks: Sequence[MemoryPeak] = ()) -> MemoryModel | None:
    """Return the memory that the job needs on a device; None: unknown."""
    declared = None
    if spec.model is not None:
        declared = declared_memory(spec.model, spec.parallelism.shard)
    return measured_memory(peaks, declared)


def device_bytes(offer: Offer) -> int | None:
    """Return the nominal memory of an offer's devices; None: unknown."""
    try:
        return device_kind(offer.device_kind).memory_bytes
    except UnknownDeviceKind:
        return None


def unfit_offers(
    spec: JobSpec, offers: Iterable[Offer], memory: MemoryModel | None
) -> tuple[UnfitOffer, ...]:
    """Return those of the offers that can't hold the job, with the reasons."""
    reasons = (_unfit(spec, offer, memory) for offer in offers)
    return tuple(reason for reason in reasons if reason is not None)


def _unfit(spec: JobSpec, offer: Offer, memory: MemoryModel | None) -> UnfitOffer | None:
    parallelism, bounds = spec.parallelism, spec.instances
    gang = parallelism.gang_on(offer)
    if gang is None:
        return UnfitOffer(offer.id, Unfit.COPIES, parallelism.shard, offer.devices)
    if gang > bounds.most_of(offer):
        return UnfitOffer(offer.id, Unfit.GANG, gang, bounds.most_of(offer))
    available_bytes = device_bytes(offer)
    if memory is None or available_bytes is None or memory.fits(available_bytes):
        return None
    return UnfitOffer(offer.id, Unfit.MEMORY, memory.bytes_with(1), available_bytes)


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """Offers within a job's bounds that can't hold it, and its most examples at once by kind."""

    unfit: tuple[UnfitOffer, ...] = ()
    most_examples: tuple[tuple[str, int], ...] = ()

    def within(self, batch: BatchBounds) -> BatchBounds:
        """Return batch bounds with at most as many examples at once as each kind holds."""
        for kind, most in self.most_examples:
            batch = batch.limited(kind, most)
        return batch


def memory_needs(
    job: JobRecord, offers: Sequence[Offer], program: ProgramMemory | None
) -> MemoryNeeds:
    """Return what a job's model needs, by its own peaks of memory or those of its program."""
    spec, peaks = job.spec, job.report.memory if job.report is not None else ()
    if not peaks and program is not None:
        peaks = program.peaks
    if spec.model is None and not peaks and spec.parallelism.shard == 1:
        return MemoryNeeds()
    memory = memory_of(spec, peaks)
    most_of_kind = {}
    for offer in offers:
        available_bytes = None if memory is None else device_bytes(offer)
        if memory is not None and available_bytes is not None:
            most_of_kind[offer.device_kind] = memory.most_examples(available_bytes)
    permitted = (offer for offer in offers if spec.instances.permits(offer))
    return MemoryNeeds(
        unfit_offers(spec, permitted, memory),
        tuple(sorted((kind, most) for kind, most in most_of_kind.items() if most)),
    )


def without_unfit(
    bounds: InstanceBounds,
    offers: Iterable[Offer],
    unfit: Sequence[UnfitOffer],
    held: Allocation | None,
) -> InstanceBounds:
    """Return the bounds without offers whose devices are too small; a held offer stays.

    No offer may be left.
    """
    small = {offer.offer for offer in unfit if offer.reason is Unfit.MEMORY}
    if not small:
        return bounds
    left_out = small - ({held.offer} if held is not None else set())
    permitted = (offer.id for offer in offers if bounds.permits(offer))
    return replace(bounds, offers=tuple(offer for offer in permitted if offer not in left_out))


def require_fit(
    spec: JobSpec, permitted: Sequence[Offer], every: Sequence[Offer], limits: Sequence[Limit]
) -> None:
    """Check that a permitted offer can hold the job, and that the limits bear its smallest size.

    Raises:
        SpecError: none can; the message has the reason of each, and what would fit at what price.
    """
    unfit = {offer.offer: offer for offer in unfit_offers(spec, permitted, memory_of(spec))}
    fitting = [offer for offer in permitted if offer.id not in unfit]
    if permitted and not fitting:
        field = "parallelism.shard"
        if any(offer.reason is Unfit.MEMORY for offer in unfit.values()):
            field = "model"
        reasons = "; ".join(str(unfit[offer.id]) for offer in permitted)
        raise SpecError(f"fits no permitted offer: {reasons}. {_proposal(spec, every)}", field)
    if spec.parallelism.shard == 1 or not fitting:
        return
    excesses = [_excess(spec, offer, limits) for offer in fitting]
    if all(excess is not None for excess in excesses):
        raise SpecError(
            f"no whole gang is within the limits: {excesses[0]}. Raise the limit, or permit an "
            "offer with more devices",
            "parallelism.shard",
        )


def _excess(spec: JobSpec, offer: Offer, limits: Sequence[Limit]) -> str | None:
    """Return the limit that the smallest whole size of an offer exceeds; None: it exceeds none."""
    least = spec.parallelism.least_instances(spec.instances, offer) or 0
    for limit in limits:
        use = least * limit.use(offer)
        if use > limit.maximum:
            return (
                f"{least} x {offer.id} need {use:g} of {limit.name!r}, which has {limit.maximum:g}"
            )
    return None


def _proposal(spec: JobSpec, offers: Sequence[Offer]) -> str:
    """Return what would hold the job, the cheapest by the hour, in words."""
    options = []
    for offer in offers:
        for shard in _powers_of_two():
            changed = with_shard(spec, shard)
            wide = replace(changed, instances=replace(spec.instances, maximum=_MOST_DEVICES))
            if offer.shared or _unfit(wide, offer, memory_of(changed)) is not None:
                continue
            gang = changed.parallelism.gang_on(offer) or 1
            price = float(offer.usd_per_hour) * gang
            options.append((price, shard, gang, offer.id))
    if not options:
        return "No offer here would hold it at any shard: use fewer parameters or larger devices"
    price, shard, gang, name = min(options)
    return f"Would fit: shard: {shard} on {gang} x {name}, at ${price:.2f}/h"


def with_shard(spec: JobSpec, shard: int) -> JobSpec:
    """Return the job with copies of its model on `shard` devices each, as chosen for it."""
    chosen = ParallelismSpec(shard=shard, has_chosen_shard=True)
    return replace(spec, parallelism=chosen)


def candidate_shards(spec: JobSpec, offers: Sequence[Offer]) -> tuple[int, ...]:
    """Return the shards among which to choose for an undecided job.

    For `auto` these are, for each kind of device, the smallest power of two that fits its memory
    and the next larger one. Offers of unknown memory count as large enough.

    Raises:
        SpecError: the job wants an automatic shard, but declares no model.
    """
    parallelism = spec.parallelism
    if not parallelism.auto_shard:
        return parallelism.shards
    if spec.model is None:
        raise SpecError(
            "auto needs the model's size: set model.parameters, or name sizes to choose from",
            "parallelism.shard",
        )
    shards: set[int] = set()
    for offer in offers:
        available_bytes = device_bytes(offer)
        for shard in _powers_of_two():
            memory = declared_memory(spec.model, shard)
            if available_bytes is None or memory.fits(available_bytes):
                shards |= {shard, min(2 * shard, _MOST_DEVICES)}
                break
    return tuple(sorted(shards)) or (1,)


def _powers_of_two() -> Iterable[int]:
    shard = 1
    while shard <= _MOST_DEVICES:
        yield shard
        shard *= 2
