"""Instances in memory, with their intents and lines of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.intent import IntentKind
from autoscaler.domain.job import JobPhase
from autoscaler.store.memory.tables import Tables
from autoscaler.store.records.hand_over import HandOver, handed_over
from autoscaler.store.records.holding import (
    Holding,
    InstanceOrder,
    ordered,
)
from autoscaler.store.records.places import Place, places_of
from autoscaler.store.records.transfers import Lined
from autoscaler.store.repositories.capacity import Refuse
from autoscaler.store.repositories.instances import Instances


class MemoryInstances(Instances):
    """Instances of the shared tables; also writes intents and the ledger."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def get(self, instance: str) -> HeldInstance:
        with self._tables.lock:
            return self._tables.instance(instance)

    def alive(self) -> tuple[HeldInstance, ...]:
        with self._tables.lock:
            return self._tables.alive_instances.all()

    def of_job(self, job: str, include_ended: bool = False) -> tuple[HeldInstance, ...]:
        with self._tables.lock:
            return self._tables.instances_of(job, include_ended)

    def ended_of_jobs(self, jobs: Collection[str]) -> Mapping[str, tuple[HeldInstance, ...]]:
        ended: dict[str, tuple[HeldInstance, ...]] = {}
        for job in jobs:
            instances = self.of_job(job, include_ended=True)
            if of_job := tuple(held for held in instances if held.phase is InstancePhase.ENDED):
                ended[job] = of_job
        return ended

    def never_trained(self, job: str) -> tuple[HeldInstance, ...]:
        instances = self.of_job(job, include_ended=True)
        untrained = [held for held in instances if _is_given_up_untrained(held)]
        trained_seconds: dict[str, float] = {}
        for held in instances if untrained else ():
            if held.training_seconds is not None:
                known_seconds = trained_seconds.get(held.offer, held.training_seconds)
                trained_seconds[held.offer] = max(known_seconds, held.training_seconds)
        return tuple(
            held
            for held in untrained
            if held.offer not in trained_seconds
            or _given_up_seconds(held) > trained_seconds[held.offer]
        )

    def keep_sightings(self) -> None:
        pass  # all is in memory

    def _sighted(
        self, instance: str, change: Callable[[HeldInstance], Lined]
    ) -> HeldInstance | None:
        return None

    def _add(self, order: InstanceOrder) -> Holding | None:
        tables = self._tables
        with tables.lock:
            if not order.is_needed(tables.instances_of(order.job, include_ended=False)):
                return None
            phase = tables.job(order.job).phase
            holding = ordered(order, phase, self._places(order.job))
            tables.minimum_billed_seconds[holding.held.id] = holding.minimum_billed_seconds
            tables.keep_instance(holding.held)
            tables.keep_intent(holding.launch)
            return holding

    def _move(self, instance: str, order: HandOver) -> Holding:
        tables = self._tables
        with tables.lock:
            before = tables.job(tables.instance(instance).job)
            after = tables.job(order.job)
            places = self._places(order.job)
            return self._keep(handed_over(self._holding(instance), order, (before, after), places))

    def _change_lined(
        self, instance: str, change: Callable[[HeldInstance], Lined]
    ) -> HeldInstance:
        with self._tables.lock:
            lined = change(self._tables.instance(instance))
            self._tables.keep_instance(lined.held)
            for line in lined.new_lines:
                self._tables.add_line(line)
            return lined.held

    def _change_of_job(
        self, instance: str, change: Callable[[Holding, JobPhase], Holding]
    ) -> tuple[Holding, JobPhase]:
        tables = self._tables
        with tables.lock:
            phase = tables.job(tables.instance(instance).job).phase
            return self._keep(change(self._holding(instance), phase)), phase

    def _change_holding(
        self,
        instance: str,
        change: Callable[[Holding], Holding],
        refuse: Refuse | None = None,
    ) -> Holding:
        with self._tables.lock:
            holding = change(self._holding(instance))
            if refuse is not None:
                refusals, offer = self._tables.refusals, holding.held.offer
                refusals[offer] = refuse(refusals.get(offer))
            return self._keep(holding)

    def _keep(self, holding: Holding) -> Holding:
        tables = self._tables
        tables.keep_instance(holding.held)
        tables.keep_intent(holding.launch)
        if holding.termination is not None:
            tables.keep_intent(holding.termination)
        for line in holding.new_lines:
            tables.add_line(line)
        return holding

    def _places(self, job: str) -> list[Place]:
        tables = self._tables
        instances = [
            *tables.instances_of(job, include_ended=True),
            *tables.given_away.get(job, ()),
        ]
        return places_of(
            job,
            (
                (held.id, held.job, Place(held.slot, held.generation, held.phase))
                for held in instances
            ),
        )

    def _holding(self, instance: str) -> Holding:
        tables = self._tables
        held = tables.instance(instance)
        intents = {intent.kind: intent for intent in tables.intents_of(instance)}
        return Holding(
            held=held,
            minimum_billed_seconds=tables.minimum_billed_seconds[instance],
            launch=intents[IntentKind.LAUNCH],
            termination=intents.get(IntentKind.TERMINATE),
            last_line=tables.last_lines.get(instance),
        )


def _is_given_up_untrained(held: HeldInstance) -> bool:
    if held.training_seconds is not None or held.launched_seconds is None:
        return False
    return held.phase is InstancePhase.ENDED or held.desired is Desired.ABSENT


def _given_up_seconds(held: HeldInstance) -> float:
    given_up_seconds = held.draining_seconds
    if given_up_seconds is None:
        given_up_seconds = held.ended_seconds
    assert given_up_seconds is not None, "a given-up instance has ended or was released"
    return given_up_seconds
