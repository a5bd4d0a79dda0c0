"""Reconciliation of held instances with decisions: orders and releases.

Level-triggered: each tick does what is possible now for the decisions in force. New instances are
ordered before old ones are released, so that training does not wait, unless the limits leave no
room for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autoscaler.controller.act.idle_instances import IdleInstances
from autoscaler.controller.act.restarts import Restarts
from autoscaler.controller.act.standby import Standby, replaced_by_recall
from autoscaler.controller.budgets.leave_limits import longest_seconds
from autoscaler.controller.jobs.gangs import (
    gang_size,
    missing_gangs,
    next_number,
    surplus_members,
)
from autoscaler.controller.offers.false_starts import false_starts, false_starts_everywhere
from autoscaler.controller.offers.market import Market
from autoscaler.controller.offers.networks import awaits_admission
from autoscaler.controller.offers.zones import as_launched, other_zones
from autoscaler.domain.allocation import Allocation, Placement
from autoscaler.domain.errors import Conflict
from autoscaler.domain.gang import GangSeat
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import JobSpec
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Decision
from autoscaler.store.records.holding import has_left
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store


class Reconciler:
    """Reconciler of decisions with held instances, by orders and releases in the store."""

    def __init__(
        self,
        store: Store,
        market: Market,
        idle_instances: IdleInstances,
        token_of: Callable[[str, str], str],
        drain_seconds: float,
    ) -> None:
        self._store = store
        self._market = market
        self.idle_instances = idle_instances
        self.standby = Standby(store, market)
        self.restarts = Restarts(store)
        self._token_of = token_of
        self._drain_seconds = drain_seconds
        self.on_hand_over: Callable[[str], None] = lambda instance: None

    def release_surplus(
        self,
        decision: Decision,
        spec: JobSpec,
        instances: Sequence[HeldInstance],
        now_seconds: float,
    ) -> None:
        """Release or pause the job's instances that the decision does not include.

        Old instances go on standby while a new size is measured, but never beyond their offer's
        end.
        """
        wanted = [held for held in instances if held.desired is Desired.PRESENT]
        decision = as_launched(decision, wanted)
        target = decision.target
        wanted = self._without_ending_offers(target, wanted, now_seconds)
        if spec.restart is not None:
            self.restarts.leave_surplus(decision, wanted, now_seconds)
            return
        if decision.placement is not None:
            for held in _outside_placement(decision.placement, wanted):
                self._store.instances.release(held.id, now_seconds)
            return
        if target is None:
            for held in wanted:
                self._store.instances.release(held.id, now_seconds)
            return
        alike = [held for held in wanted if held.offer == target.offer]
        size = gang_size(spec, target.devices_used) or 1
        for held in _surplus(alike, target.instances, size):
            self._store.instances.release(held.id, now_seconds)
        others = [held for held in wanted if held.offer != target.offer]
        for held in others:
            if held.phase is InstancePhase.QUEUED:  # once launched, it would be billed without use
                self._store.instances.release(held.id, now_seconds)
        ready = [
            held
            for held in alike
            if not held.stands_by
            and (held.phase is InstancePhase.TRAINING or awaits_admission(held, instances))
        ]
        # Part of a gang does not train, so that old instances never wait for it.
        least_ready = target.instances - target.instances % size
        is_target_ready = len(ready) >= least_ready
        on_standby: frozenset[str] = frozenset()
        if is_target_ready and not decision.release_first:
            on_standby = self.standby.kept(decision, wanted, now_seconds)
        replaced = replaced_by_recall(others)
        for held in others:
            may_release = (
                decision.release_first or is_target_ready or held.stands_by or held.id in replaced
            )
            if may_release and held.id not in on_standby:
                self._store.instances.release(held.id, now_seconds)

    def _without_ending_offers(
        self, target: Allocation | None, wanted: Sequence[HeldInstance], now_seconds: float
    ) -> list[HeldInstance]:
        """Release instances that the target replaces and whose offers end; return the others.

        The end of an offer counts as a reclaim: nothing is awaited beyond it.
        """
        ends = {offer.id: offer.until_seconds for offer in self._market.offers}
        staying = []
        for held in wanted:
            end_seconds = ends.get(held.offer)
            if target is None or held.offer == target.offer or end_seconds is None:
                staying.append(held)
                continue
            job, left_seconds = self._store.jobs.get(held.job), end_seconds - now_seconds
            if not 0 < left_seconds <= longest_seconds(self._store, job, self._drain_seconds):
                staying.append(held)
                continue
            self._store.instances.take_back(held.id, end_seconds, now_seconds)
            text = f"{held.id} leaves: {held.offer} ends in {left_seconds:.0f} s"
            self._store.events.add(Event(now_seconds, "offer ends", text, held.job))
        return staying

    def order_missing(
        self,
        decision: Decision,
        spec: JobSpec,
        alive: Sequence[HeldInstance],
        offers: Sequence[Offer],
        now_seconds: float,
    ) -> str | None:
        """Order the instances that the decision wants and the job lacks, as far as limits permit.

        Returns why some of them are not ordered now; None: nothing is missing, or false starts are
        the reason.

        A trial takes idle instances of its study before it orders, and waits for those about to
        become idle. `alive` are the instances of all jobs. `offers` have present estimates.
        """
        job_instances = self._store.instances.of_job(decision.job)
        wanted = [held for held in job_instances if held.desired is Desired.PRESENT]
        decision = as_launched(decision, wanted)
        if decision.placement is not None:
            self._order_shares(decision.job, decision.placement, wanted, alive, now_seconds)
            return None
        target = decision.target
        if target is None:
            return None
        alike = [held for held in wanted if held.offer == target.offer]
        size = gang_size(spec, target.devices_used)
        if size is None:
            return f"{target.offer} can't hold whole copies of the model"
        self._use(alike, target.devices_used, now_seconds)
        missing, most_held = target.instances - len(alike), target.instances
        if missing > 0 and size == 1:
            handed_over, promised = self._take_over(
                decision.job, target, missing, alive, now_seconds
            )
            missing, most_held = missing - handed_over - promised, most_held - promised
        if target.offer in self._store.capacity.unavailable(now_seconds):
            return self._refused_text(target.offer) if missing > 0 else None
        if missing > 0 and self._is_backed_off(decision.job, target.offer, now_seconds):
            return None
        if size > 1:
            gangs = missing_gangs(alike, target.instances, size)
            return self._order_gangs(decision.job, target, (gangs, size), alive, now_seconds)
        is_alone = target.instances == 1 and not wanted
        zones = other_zones(target.offer, offers, now_seconds) if is_alone else []
        for number in range(missing):
            if not self._has_room(target.offer, alive, number):
                self._make_room(target.offer, alive, now_seconds)
                return _no_room_text(target.offer)
            alternatives = self._permitted(decision.job, zones, alive, now_seconds)
            self._order(decision.job, target, most_held, now_seconds, alternatives)
        return None

    def _refused_text(self, offer: str) -> str:
        """Return why an offer is not ordered after its cloud refused a launch."""
        refusal = self._store.capacity.refusals().get(offer)
        reason = "" if refusal is None else f": {refusal.reason}"
        return f"{offer} is not ordered again yet, because its last launch was refused{reason}"

    def _use(
        self, instances: Sequence[HeldInstance], devices_used: int, now_seconds: float
    ) -> None:
        """Let all these instances train on so many devices each, also those on standby."""
        for held in instances:
            if held.stands_by:
                self.standby.recall(held, now_seconds)
            if held.devices_used != devices_used:
                self._store.instances.use_devices(held.id, devices_used)

    def _order_gangs(
        self,
        job: str,
        target: Allocation,
        missing: tuple[int, int],
        alive: Sequence[HeldInstance],
        now_seconds: float,
    ) -> str | None:
        """Order whole gangs of the target: `missing` is their number, and the instances of each.

        A gang is ordered only if the limits permit all of its instances.

        Returns why a gang is not ordered now; None: all are.
        """
        gangs, size = missing
        if not gangs:
            return None
        number = next_number(self._store.instances.of_job(job, include_ended=True))
        for ordered in range(gangs):
            if not self._has_room(target.offer, alive, (ordered + 1) * size - 1):
                self._make_room(target.offer, alive, now_seconds)
                return _no_room_text(target.offer)
            for index in range(size):
                self._store.instances.order_up_to(
                    target.instances,
                    job,
                    self._market.offer(target.offer),
                    target.devices_used,
                    lambda instance: self._token_of(instance, target.offer),
                    now_seconds,
                    seat=GangSeat(number + ordered, index, size),
                )
        return None

    def _permitted(
        self,
        job: str,
        offers: Sequence[Offer],
        alive: Sequence[HeldInstance],
        now_seconds: float,
    ) -> tuple[Offer, ...]:
        """Return the offers of which a job may order one now."""
        if not offers:
            return ()
        bounds = self._store.jobs.get(job).spec.instances
        refused = self._store.capacity.unavailable(now_seconds)
        backed_off = false_starts(self._store, job, now_seconds)
        return tuple(
            offer
            for offer in offers
            if bounds.permits(offer)
            and bounds.most_of(offer) >= 1
            and offer.id not in refused
            and offer.id not in backed_off
            and self._has_room(offer.id, alive, 0)
        )

    def _take_over(
        self,
        job: str,
        target: Allocation,
        missing: int,
        alive: Sequence[HeldInstance],
        now_seconds: float,
    ) -> tuple[int, int]:
        """Hand idle instances of its study over to a trial.

        Returns:
            The number of instances handed over, and the number reserved for the trial.
        """
        study = self._store.jobs.get(job).spec.study
        if study is None:
            return 0, 0
        alike = [
            held
            for held in alive
            if held.offer == target.offer and (held.job != job or has_left(held))
        ]
        handed_over = 0
        for held in self.idle_instances.free(alike, now_seconds, study)[:missing]:
            try:
                self._store.instances.hand_over(held.id, job, target.devices_used, now_seconds)
            except Conflict:  # the instance has changed meanwhile
                continue
            handed_over += 1
            text = f"{held.id} is handed over from {held.job} to {job}"
            self._store.events.add(Event(now_seconds, "handed over", text, job))
            self.on_hand_over(held.id)
        leaving = self.idle_instances.soon_free(alike, now_seconds, study)
        return handed_over, self.idle_instances.promise(job, leaving, missing - handed_over)

    def _make_room(self, offer_id: str, alive: Sequence[HeldInstance], now_seconds: float) -> None:
        """Release instances on standby that share a limit with an offer, and one idle instance."""
        self.standby.make_room(offer_id, alive, now_seconds)
        for held in self.idle_instances.free(alive, now_seconds)[:1]:
            self._store.instances.request_termination(held.id, now_seconds)

    def _order_shares(
        self,
        job: str,
        placement: Placement,
        wanted: Sequence[HeldInstance],
        alive: Sequence[HeldInstance],
        now_seconds: float,
    ) -> None:
        """Order the missing shares of machines that jobs share, where devices are free."""
        held_offers = {held.offer for held in wanted}
        for offer, devices in placement.shares:
            used = sum(held.devices_used for held in alive if held.offer == offer)
            has_room = used + devices <= self._market.offer(offer).devices
            if offer not in held_offers and has_room:
                self._order(job, Allocation(offer, 1, devices), 1, now_seconds)

    def _is_backed_off(self, job: str, offer: str, now_seconds: float) -> bool:
        """Return whether false starts forbid an order now; record the reason once."""
        text = false_starts_everywhere(self._store, job, now_seconds)
        text = text or false_starts(self._store, job, now_seconds).get(offer)
        if text is None:
            return False
        recent_events = self._store.events.latest(job, limit=20)
        if not any(event.text == text for event in recent_events):
            self._store.events.add(Event(now_seconds, "false starts", text, job))
        return True

    def _order(
        self,
        job: str,
        target: Allocation,
        most: int,
        now_seconds: float,
        alternatives: tuple[Offer, ...] = (),
    ) -> None:
        """Order one more instance, unless the job already holds `most` of the target's offer."""
        self._store.instances.order_up_to(
            most,
            job,
            self._market.offer(target.offer),
            target.devices_used,
            lambda instance: self._token_of(instance, target.offer),
            now_seconds,
            alternatives,
        )

    def _has_room(self, offer_id: str, alive: Sequence[HeldInstance], ordered: int) -> bool:
        """Return whether the limits permit one more instance beside all existing ones.

        Instances that are leaving count, and so do `ordered` instances of this tick. An order that
        names several offers counts as the one that uses most.
        """
        offers = {offer.id: offer for offer in self._market.offers}
        offer = offers[offer_id]
        for limit in self._market.limits_beside_unsold(alive):
            used = sum(_most_use(limit, held, offers) for held in alive)
            if used + (ordered + 1) * limit.use(offer) > limit.maximum + 1e-9:
                return False
        return True


def _no_room_text(offer: str) -> str:
    return (
        f"the limits leave no room for {offer} beside the instances of all jobs; those that leave "
        "count until they have ended"
    )


def _most_use(limit: Limit, held: HeldInstance, offers: Mapping[str, Offer]) -> float:
    """Return how much of a limit an instance may use; 0 if its offers are no longer sold."""
    names = (held.offer, *held.alternatives) if held.cloud_id is None else (held.offer,)
    return max((limit.use(offers[name]) for name in names if name in offers), default=0.0)


def _outside_placement(placement: Placement, wanted: Sequence[HeldInstance]) -> list[HeldInstance]:
    """Return the held instances that are not part of `placement`."""
    shares = dict(placement.shares)
    return [held for held in wanted if shares.pop(held.offer, None) != held.devices_used]


def _surplus(instances: Sequence[HeldInstance], target: int, size: int) -> Sequence[HeldInstance]:
    """Return the wanted instances of one offer to release, so that whole gangs of `size` stay."""
    if size > 1:
        return surplus_members(instances, target, size)
    return _release_order(instances)[: max(len(instances) - target, 0)]


def _release_order(instances: Sequence[HeldInstance]) -> list[HeldInstance]:
    """Return instances in the order in which to release them.

    Instances that run no script are first, then those whose script does not train, as scripts
    without a session never do. Among equals the youngest are first, because older instances are
    less likely to be reclaimed.
    """
    return sorted(
        instances,
        key=lambda held: (
            held.phase is InstancePhase.TRAINING,
            held.phase is InstancePhase.STARTING,
            -held.requested_seconds,
            held.id,
        ),
    )
