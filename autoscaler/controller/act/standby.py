"""Standby: old instances that stay paused while their job measures another kind of instance.

An unmeasured size may turn out worse. Returning to instances on standby costs a few seconds of
their price instead of a boot. Standby is stored with the instance, so that a restarted controller
ends it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from autoscaler.clock import is_waiting
from autoscaler.controller.offers.market import Market
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.domain.plan import Decision
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

# A new size is usually measured about 10 s after its first step. Slower sizes are measured
# without instances on standby.
STANDBY_SECONDS: Final = 25.0

_MAY_STAND_BY = (JobPhase.PENDING, JobPhase.RUNNING)


class Standby:
    """Pauses, recalls and releases of instances on standby."""

    def __init__(self, store: Store, market: Market) -> None:
        self._store = store
        self._market = market

    def end(
        self,
        job: JobRecord,
        instances: Iterable[HeldInstance],
        now_seconds: float,
        is_frozen: bool,
    ) -> None:
        """Release instances whose standby has expired, or that no decision can recall."""
        may_go_on = job.phase in _MAY_STAND_BY and not is_frozen
        for held in instances:
            ends_seconds = held.standby_ends_seconds if held.stands_by else None
            if ends_seconds is not None and not (
                may_go_on and is_waiting(ends_seconds, now_seconds, STANDBY_SECONDS)
            ):
                self._store.instances.release(held.id, now_seconds)

    def kept(
        self, decision: Decision, wanted: Sequence[HeldInstance], now_seconds: float
    ) -> frozenset[str]:
        """Return the ids of instances of other offers that stay on standby.

        If none is on standby yet, those of the size that the job trained on so far are paused now.
        Call this once all instances of the target train.

        Args:
            decision: a decision with a target.
            wanted: the job's instances that were not released.
            now_seconds: the time since the Unix epoch.
        """
        target = decision.target
        assert target is not None
        others = [held for held in wanted if held.offer != target.offer]
        if not others or not self._is_look(decision.job, target):
            return frozenset()
        standing = [held for held in others if held.stands_by]
        if not standing:
            standing = _last_ordered([held for held in others if self._may_pause(held, target)])
            self._pause(decision, standing, now_seconds)
        return frozenset(held.id for held in standing)

    def recall(self, held: HeldInstance, now_seconds: float) -> None:
        """Let an instance on standby train again."""
        facts: dict[str, str] = {Fact.STANDBY: "", Fact.RECALLED: str(now_seconds)}
        self._store.instances.note(held.id, facts)
        text = f"{held.id} trains again, after standby"
        self._store.events.add(Event(now_seconds, "standby", text, held.job))

    def make_room(self, offer_id: str, alive: Iterable[HeldInstance], now_seconds: float) -> None:
        """Release instances on standby that share a limit with an offer."""
        offers = {offer.id: offer for offer in self._market.offers}
        limits = [limit for limit in self._market.limits if limit.use(offers[offer_id]) > 0]
        for held in alive:
            offer = offers.get(held.offer)
            if not held.stands_by or offer is None:
                continue
            if any(limit.use(offer) > 0 for limit in limits):
                self._store.instances.release(held.id, now_seconds)

    def _is_look(self, job: str, target: Allocation) -> bool:
        """Return whether the target's size is unmeasured and the job may have to leave it again.

        False for trials of a study, whose released instances stay with the study anyway.
        """
        if self._store.jobs.get(job).spec.study is not None:
            return False
        model = self._store.measurements.models(job).get(
            self._market.offer(target.offer).device_kind
        )
        return model is None or (target.instances, target.devices) not in model.measured

    def _may_pause(self, held: HeldInstance, target: Allocation) -> bool:
        """Return whether an instance trains, and could do so beside the target's again."""
        offer = self._market.offer(target.offer)
        is_near = held.network == (offer.network or "")
        is_taken_back = held.reclaim_seconds is not None
        return held.phase is InstancePhase.TRAINING and is_near and not is_taken_back

    def _pause(
        self, decision: Decision, instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        if not instances:
            return
        ends_seconds = now_seconds + STANDBY_SECONDS
        for held in instances:
            self._store.instances.note(held.id, {Fact.STANDBY: str(ends_seconds)})
        names = ", ".join(held.id for held in instances)
        text = (
            f"{names} paused while {decision.target} is measured, "
            f"for {STANDBY_SECONDS:.0f} s at most"
        )
        self._store.events.add(Event(now_seconds, "standby", text, decision.job))


def replaced_by_recall(instances: Sequence[HeldInstance]) -> frozenset[str]:
    """Return the ids of instances that a recall of others has replaced, once the recalled train.

    They are released at once, even if the job moves on to a third offer. Otherwise both groups
    would train together at the pace of the slower one.
    """
    recalled = [
        held
        for held in instances
        if held.recalled_seconds is not None
        and not held.stands_by
        and held.phase is InstancePhase.TRAINING
    ]
    last = max(recalled, key=lambda held: (held.ordered_seconds, held.id), default=None)
    if last is None:
        return frozenset()
    return frozenset(
        held.id
        for held in instances
        if held.offer != last.offer and held.ordered_seconds < last.ordered_seconds
    )


def _last_ordered(instances: Sequence[HeldInstance]) -> list[HeldInstance]:
    """Return the instances of the offer that was ordered or recalled last."""
    if not instances:
        return []
    last = max(instances, key=lambda held: (held.ordered_seconds, held.id))
    return [held for held in instances if held.offer == last.offer]
