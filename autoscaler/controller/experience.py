"""What the instances of all jobs have taught of where they are sold.

Learnt from what the store keeps of instances, so that a restart forgets nothing: how long spot
lives until it is reclaimed, how long orders wait in queues, and which launches were refused.
Refusals for other reasons than capacity are few and over soon; they count as such.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from autoscaler.domain.errors import InsufficientCapacity
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.lives import Lives
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.market.queues import Wait, left_seconds, usual_waits
from autoscaler.market.zones import (
    Ask,
    Belief,
    Holding,
    Place,
    Seen,
    beliefs,
    fill_seconds,
)
from autoscaler.store.store import Store

_LOOK_AGAIN_SECONDS = 60.0
# What was seen so long ago counts for next to nothing.
_FORGOTTEN_SECONDS = 30 * 86400.0
# Beliefs move by such a part of their doubling, or not at all: what is no news is planned once.
_STEPS = 4


class Experience:
    """The instances that there were, and what they make believe of the offers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._instances: dict[str, tuple[HeldInstance, ...]] = {}
        self._unsettled: set[str] | None = None
        self._looked_at: object = None
        self._looked_seconds = -math.inf
        self._beliefs: Mapping[str, Belief] = {}
        self._waits: Mapping[str, float] = {}

    def believed(
        self, offers: Sequence[Offer], alive: Sequence[HeldInstance], now_seconds: float
    ) -> tuple[Offer, ...]:
        """The offers with the reclaims and the waiting for capacity to be expected now."""
        refusals = self._store.capacity.refusals()
        places = {offer.id: place for offer in offers if (place := _place(offer)) is not None}
        if refusals or any(offer.purchase.is_at_times for offer in offers):
            news = (tuple(offers), frozenset(held.id for held in alive), frozenset(refusals))
            waited_seconds = now_seconds - self._looked_seconds
            if news != self._looked_at or waited_seconds >= _LOOK_AGAIN_SECONDS:
                self._looked_at, self._looked_seconds = news, now_seconds
                self._learn(offers, places, now_seconds)
        waited_for = self.waited_for(offers, now_seconds)
        out = [self._beliefs[offer] for offer in sorted(waited_for)]
        wait_seconds = fill_seconds(out) if out else 0.0
        return tuple(
            self._as_believed(offer, wait_seconds if offer.id in waited_for else 0.0)
            for offer in offers
        )

    def queue_seconds(self, held: Collection[HeldInstance]) -> dict[str, float]:
        """What the orders of these that wait in a queue have yet to wait, by offer."""
        return {
            each.offer: in_steps(left_seconds(self._waits[each.offer]))
            for each in held
            if each.phase is InstancePhase.QUEUED
            and each.desired is Desired.PRESENT
            and each.offer in self._waits
        }

    def lives(self, offers: Sequence[Offer]) -> dict[str, Lives]:
        """The lives of instances of each offer that may be reclaimed, by its id."""
        known = ((offer.id, self._beliefs.get(offer.id)) for offer in offers)
        return {offer: one.lives for offer, one in known if one is not None and one.lives}

    def waited_for(self, offers: Sequence[Offer], now_seconds: float) -> frozenset[str]:
        """The spot offers that may be waited for: they have just refused, and so have all others.

        To ask is free and answered at once: as long as there is one to ask, none is waited for.
        Who waits for one takes any.
        """
        spot = {offer.id for offer in offers if offer.purchase is Purchase.SPOT}
        refused = frozenset(
            offer
            for offer, refusal in self._store.capacity.refusals().items()
            if refusal.error_kind == InsufficientCapacity.__name__
            and refusal.until_seconds > now_seconds
        )
        return refused & spot & self._beliefs.keys() if spot <= refused else frozenset()

    def reclaims_per_hour(
        self, held: Collection[HeldInstance], now_seconds: float
    ) -> float | None:
        """Return the mean hazard of these at their ages; None where nothing is believed of them.

        It moves in the steps in which the hazard of a new instance does: a new one is not the
        better for its rounding.
        """
        ages = [
            (self._beliefs[each.offer], now_seconds - each.launched_seconds)
            for each in held
            if each.launched_seconds is not None and each.offer in self._beliefs
        ]
        if not ages:
            return None
        hazards = [belief.reclaims_per_hour(max(age, 0.0)) for belief, age in ages]
        return in_steps(sum(hazards) / len(hazards))

    def _as_believed(self, offer: Offer, wait_seconds: float) -> Offer:
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

    def _learn(
        self, offers: Sequence[Offer], places: Mapping[str, Place], now_seconds: float
    ) -> None:
        self._read(now_seconds - _FORGOTTEN_SECONDS)
        seen = _seen(self._instances.values(), places, now_seconds)
        told = {
            places[offer.id]: offer.reclaims_per_hour for offer in offers if offer.id in places
        }
        found = beliefs(seen, told, now_seconds)
        self._beliefs = {offer: found[place] for offer, place in places.items()}
        queues = {offer.id: _place_of(offer) for offer in offers if _has_queue(offer)}
        usual = {queues[offer.id]: offer.fill_seconds for offer in offers if offer.id in queues}
        waits = usual_waits(
            _waits(self._instances.values(), queues, now_seconds), usual, now_seconds
        )
        self._waits = {offer: waits[place] for offer, place in queues.items()}

    def _read(self, since_seconds: float) -> None:
        """Read what may have changed: at first all jobs, later those that had instances left."""
        every = self._store.jobs.all() if self._unsettled is None else self._store.jobs.alive()
        jobs = {job.id for job in every} | (self._unsettled or set())
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


def _place(offer: Offer) -> Place | None:
    """Where it is sold; None for what is the owner's already, or is waited for in a queue."""
    if offer.shared or offer.purchase is Purchase.RESERVED or _has_queue(offer):
        return None
    return _place_of(offer)


def _place_of(offer: Offer) -> Place:
    return Place(offer.provider, offer.instance_type, offer.zone, offer.purchase)


def _has_queue(offer: Offer) -> bool:
    return offer.purchase is Purchase.FLEX_START and offer.fill_seconds > 0


def _waits(
    instances: Collection[Sequence[HeldInstance]],
    queues: Mapping[str, Place],
    now_seconds: float,
) -> dict[Place, list[Wait]]:
    """Of all orders that their clouds took; those that were refused are none."""
    found: dict[Place, list[Wait]] = {place: [] for place in queues.values()}
    for of_job in instances:
        for held in of_job:
            place = queues.get(held.offer)
            if place is None or held.cloud_id is None:
                continue
            ends = (held.launched_seconds, held.draining_seconds, held.ended_seconds, now_seconds)
            until_seconds = next(end for end in ends if end is not None)
            was_filled = held.launched_seconds is not None
            found[place].append(Wait(held.requested_seconds, until_seconds, was_filled))
    return found


def _seen(
    instances: Collection[Sequence[HeldInstance]],
    places: Mapping[str, Place],
    now_seconds: float,
) -> dict[Place, Seen]:
    asks: dict[Place, list[Ask]] = {place: [] for place in places.values()}
    holdings: dict[Place, list[Holding]] = {place: [] for place in places.values()}
    for of_job in instances:
        for held in of_job:
            place = places.get(held.offer)
            if place is None:
                continue
            if held.launched_seconds is not None:
                asks[place].append(Ask(held.launched_seconds, was_filled=True))
                holdings[place].append(_holding(held, held.launched_seconds, now_seconds))
            elif held.ended_seconds is not None and held.desired is Desired.PRESENT:
                asks[place].append(Ask(held.ended_seconds, was_filled=False))
    return {place: Seen(tuple(asks[place]), tuple(holdings[place])) for place in asks}


def _holding(held: HeldInstance, launched_seconds: float, now_seconds: float) -> Holding:
    """One at work that ended without notice while it was wanted was reclaimed too."""
    ends = (held.ended_seconds, held.reclaim_seconds, now_seconds)
    end_seconds = min(end for end in ends if end is not None)
    was_lost = held.phase is InstancePhase.ENDED and held.desired is Desired.PRESENT
    was_reclaimed = held.reclaim_seconds is not None or (
        was_lost and held.joined_seconds is not None
    )
    return Holding(launched_seconds, max(end_seconds, launched_seconds), was_reclaimed)


def in_steps(value: float) -> float:
    """The value to a part of its doubling; 0 where there is none."""
    return 2.0 ** (round(_STEPS * math.log2(value)) / _STEPS) if value > 0 else 0.0
