"""Estimates of reclaims, queues and capacity of offers, from the instances of all jobs.

Lifetimes of spot instances, waits in queues and refused launches come from the store, so that
they survive a restart. Refusals for other reasons than capacity are rare and short; they count as
a lack of capacity.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from autoscaler.domain.errors import InsufficientCapacity
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.lives import LifetimeEstimate
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.market.queues import Wait, expected_waits, left_seconds
from autoscaler.market.zones import (
    HoldingPeriod,
    LaunchAttempt,
    PlaceEstimate,
    PlaceObservations,
    PurchasePlace,
    beliefs,
    fill_seconds,
)
from autoscaler.store.store import Store

_UPDATE_SECONDS = 60.0
# Older observations have almost no weight and are not read.
_FORGOTTEN_SECONDS = 30 * 86400.0
# Estimates are rounded to this many steps per doubling, so that small changes trigger no plan.
_STEPS = 4


class MarketEstimator:
    """Estimates for offers from the history of all instances."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._instances: dict[str, tuple[HeldInstance, ...]] = {}
        self._unsettled: set[str] | None = None
        self._update_key: object = None
        self._updated_seconds = -math.inf
        self._beliefs: Mapping[str, PlaceEstimate] = {}
        self._waits: Mapping[str, float] = {}

    def believed(
        self, offers: Sequence[Offer], alive: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[Offer, ...]:
        """Return the offers with the expected reclaims and waits for capacity now."""
        refusals = self._store.capacity.refusals()
        places = {offer.id: place for offer in offers if (place := _place(offer)) is not None}
        if refusals or any(offer.purchase.is_at_times for offer in offers):
            update_key = (tuple(offers), frozenset(held.id for held in alive), frozenset(refusals))
            age_seconds = now_seconds - self._updated_seconds
            if update_key != self._update_key or age_seconds >= _UPDATE_SECONDS:
                self._update_key, self._updated_seconds = update_key, now_seconds
                self._update(offers, places, now_seconds)
        waited_for = self.waited_for(offers, now_seconds)
        out_beliefs = [self._beliefs[offer] for offer in sorted(waited_for)]
        wait_seconds = fill_seconds(out_beliefs) if out_beliefs else 0.0
        return tuple(
            self._with_estimates(offer, wait_seconds if offer.id in waited_for else 0.0)
            for offer in offers
        )

    def queue_seconds(self, held: Collection[HeldInstance]) -> dict[str, float]:
        """Return the expected remaining waits of queued orders in seconds, by offer."""
        return {
            instance.offer: in_steps(left_seconds(self._waits[instance.offer]))
            for instance in held
            if instance.phase is InstancePhase.QUEUED
            and instance.desired is Desired.PRESENT
            and instance.offer in self._waits
        }

    def lives(self, offers: Sequence[Offer]) -> dict[str, LifetimeEstimate]:
        """Return the lives of instances of each reclaimable offer, by offer id."""
        belief_of = ((offer.id, self._beliefs.get(offer.id)) for offer in offers)
        return {
            offer: belief.lives
            for offer, belief in belief_of
            if belief is not None and belief.lives
        }

    def waited_for(self, offers: Sequence[Offer], now_seconds: float) -> frozenset[str]:
        """Return the spot offers that a job may wait for: all, once every spot offer was refused.

        Requests are free and answered at once. So jobs do not wait while an untried spot offer
        exists, and a waiting job takes any of them.
        """
        spot = {offer.id for offer in offers if offer.purchase is Purchase.SPOT}
        refused = frozenset(
            offer
            for offer, refusal in self._store.capacity.refusals().items()
            if refusal.error_kind == InsufficientCapacity.__name__ and refusal.holds(now_seconds)
        )
        return refused & spot & self._beliefs.keys() if spot <= refused else frozenset()

    def reclaims_per_hour(
        self, held: Collection[HeldInstance], now_seconds: float
    ) -> float | None:
        """Return the mean hazard of instances at their ages, per hour; None without an estimate.

        The value is rounded like that of a new instance, so that rounding favours neither.
        """
        ages = [
            (self._beliefs[instance.offer], now_seconds - instance.launched_seconds)
            for instance in held
            if instance.launched_seconds is not None and instance.offer in self._beliefs
        ]
        if not ages:
            return None
        hazards = [belief.reclaims_per_hour(max(age, 0.0)) for belief, age in ages]
        return in_steps(sum(hazards) / len(hazards))

    def _with_estimates(self, offer: Offer, wait_seconds: float) -> Offer:
        if offer.id in self._waits:
            return replace(offer, fill_seconds=in_steps(self._waits[offer.id]))
        belief = self._beliefs.get(offer.id)
        if belief is None:
            return offer
        return replace(
            offer,
            reclaims_per_hour=in_steps(belief.reclaims_per_hour()),
            fill_seconds=in_steps(wait_seconds),
        )

    def _update(
        self, offers: Sequence[Offer], places: Mapping[str, PurchasePlace], now_seconds: float
    ) -> None:
        self._read_instances(now_seconds - _FORGOTTEN_SECONDS)
        observations = _observations(self._instances.values(), places, now_seconds)
        stated_reclaims = {
            places[offer.id]: offer.reclaims_per_hour for offer in offers if offer.id in places
        }
        by_place = beliefs(observations, stated_reclaims, now_seconds)
        self._beliefs = {offer: by_place[place] for offer, place in places.items()}
        queues = {offer.id: _place_of(offer) for offer in offers if _has_queue(offer)}
        stated_waits = {
            queues[offer.id]: offer.fill_seconds for offer in offers if offer.id in queues
        }
        waits = expected_waits(
            _waits(self._instances.values(), queues, now_seconds), stated_waits, now_seconds
        )
        self._waits = {offer: waits[place] for offer, place in queues.items()}

    def _read_instances(self, since_seconds: float) -> None:
        """Read instances that may have changed: of all jobs at first, later of unsettled jobs."""
        job_records = (
            self._store.jobs.all() if self._unsettled is None else self._store.jobs.alive()
        )
        jobs = {job.id for job in job_records} | (self._unsettled or set())
        self._unsettled = set()
        for job in jobs:
            instances = self._store.instances.of_job(job, include_ended=True)
            self._instances[job] = tuple(
                held
                for held in instances
                if held.ended_seconds is None or held.ended_seconds > since_seconds
            )
            if any(held.phase is not InstancePhase.ENDED for held in instances):
                self._unsettled.add(job)


def _place(offer: Offer) -> PurchasePlace | None:
    """Return the place where an offer is sold; None for owned offers and for queues."""
    if offer.shared or offer.purchase is Purchase.RESERVED or _has_queue(offer):
        return None
    return _place_of(offer)


def _place_of(offer: Offer) -> PurchasePlace:
    return PurchasePlace(offer.provider, offer.instance_type, offer.zone, offer.purchase)


def _has_queue(offer: Offer) -> bool:
    return offer.purchase is Purchase.FLEX_START and offer.fill_seconds > 0


def _waits(
    instances: Collection[Sequence[HeldInstance]],
    queues: Mapping[str, PurchasePlace],
    now_seconds: float,
) -> dict[PurchasePlace, list[Wait]]:
    """Return the waits of all orders that their clouds accepted; refused orders are left out."""
    waits_of: dict[PurchasePlace, list[Wait]] = {place: [] for place in queues.values()}
    for job_instances in instances:
        for held in job_instances:
            place = queues.get(held.offer)
            if place is None or held.cloud_id is None:
                continue
            end_candidates = (
                held.launched_seconds,
                held.draining_seconds,
                held.ended_seconds,
                now_seconds,
            )
            until_seconds = next(end for end in end_candidates if end is not None)
            was_filled = held.launched_seconds is not None
            waits_of[place].append(Wait(held.requested_seconds, until_seconds, was_filled))
    return waits_of


def _observations(
    instances: Collection[Sequence[HeldInstance]],
    places: Mapping[str, PurchasePlace],
    now_seconds: float,
) -> dict[PurchasePlace, PlaceObservations]:
    asks: dict[PurchasePlace, list[LaunchAttempt]] = {place: [] for place in places.values()}
    holdings: dict[PurchasePlace, list[HoldingPeriod]] = {place: [] for place in places.values()}
    for job_instances in instances:
        for held in job_instances:
            place = places.get(held.offer)
            if place is None:
                continue
            if held.launched_seconds is not None:
                asks[place].append(LaunchAttempt(held.launched_seconds, was_filled=True))
                holdings[place].append(_holding(held, held.launched_seconds, now_seconds))
            elif held.ended_seconds is not None and held.desired is Desired.PRESENT:
                asks[place].append(LaunchAttempt(held.ended_seconds, was_filled=False))
    return {place: PlaceObservations(tuple(asks[place]), tuple(holdings[place])) for place in asks}


def _holding(held: HeldInstance, launched_seconds: float, now_seconds: float) -> HoldingPeriod:
    """Return the holding of an instance.

    A working instance that ended without notice while it was wanted counts as reclaimed.
    """
    ends = (held.ended_seconds, held.reclaim_seconds, now_seconds)
    end_seconds = min(end for end in ends if end is not None)
    was_lost = held.phase is InstancePhase.ENDED and held.desired is Desired.PRESENT
    was_reclaimed = held.reclaim_seconds is not None or (
        was_lost and held.joined_seconds is not None
    )
    return HoldingPeriod(launched_seconds, max(end_seconds, launched_seconds), was_reclaimed)


def in_steps(value: float) -> float:
    """Return the value rounded to `_STEPS` steps per doubling; 0 for values up to 0."""
    return 2.0 ** (round(_STEPS * math.log2(value)) / _STEPS) if value > 0 else 0.0
