"""Contract of a store for instances that pass from one job of a study to another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.errors import Conflict, UnknownJob
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import (
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.job import JobPhase
from autoscaler.ledger.bill import amount
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, end, launch, order, spec


class HandOverConformance:
    def test_an_instance_passes_between_jobs_of_a_study(self, store: Store) -> None:
        held = _joined(store)
        store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 5, {"complete": "6"})
        store.instances.record_node(held.id, InstancePhase.DRAINED, NOW + 6)
        store.jobs.set_phase("s-0", JobPhase.RUNNING, NOW + 6)
        store.jobs.set_phase("s-0", JobPhase.FINISHED, NOW + 6)
        for _ in range(2):
            moved = store.instances.hand_over(held.id, "s-1", 2, NOW + 10)
        assert (moved.id, moved.job, moved.slot, moved.generation) == ("s-0-0-1", "s-1", 0, 1)
        assert (moved.phase, moved.desired) == (InstancePhase.PREPARING, Desired.PRESENT)
        assert (moved.training_seconds, moved.devices_used) == (None, 2)
        assert (moved.launched_seconds, moved.joined_seconds) == (NOW + 1, NOW + 2)
        assert moved.facts == {Fact.START: "4.0", Fact.HANDED_OVER: str(NOW + 10)}
        assert store.instances.of_job("s-0", include_ended=True) == ()
        assert store.instances.of_job("s-1") == (moved,)
        assert store.instances.alive() == (moved,)
        assert order(store, "s-1").id == "s-1-1-1"

    def test_a_handed_over_instance_is_billed_exactly_once(self, store: Store) -> None:
        held = _joined(store)
        _end_first(store)
        store.instances.hand_over(held.id, "s-1", 1, NOW + 11.5)
        for now_seconds, first, second in ((NOW + 12, 11, 49), (NOW + 201, 11, 189)):
            ledger = Ledger(store.ledger.entries())
            for job, seconds in (("s-0", first), ("s-1", second)):
                job_ledger = Ledger(store.ledger.entries(job))
                assert job_ledger.spent(job, now_seconds) == ledger.spent(job, now_seconds)
                assert job_ledger.spent(job, now_seconds) == amount(held.usd_per_hour, seconds)
            assert sum(charge.seconds for charge in ledger.charges(now_seconds)) == first + second
        job_ledger = Ledger(store.ledger.entries("s-0"))
        assert job_ledger.rate_usd_per_hour(NOW + 20, "s-0") == 0
        assert job_ledger.rate_usd_per_hour(NOW + 20) == held.usd_per_hour
        end(store, held.id, NOW + 201)
        charges = Ledger(store.ledger.entries()).charges(NOW + 900)
        assert sum(charge.seconds for charge in charges) == 200

    def test_an_instance_that_ended_before_its_hand_over_costs_its_run_time(
        self, store: Store
    ) -> None:
        held = _joined(store)
        _end_first(store)
        store.instances.hand_over(held.id, "s-1", 1, NOW + 101)
        end(store, held.id, NOW + 90)
        assert Ledger(store.ledger.entries()).total(NOW + 999) == amount(held.usd_per_hour, 100)

    def test_a_held_or_ending_instance_is_not_handed_over(self, store: Store) -> None:
        held = _joined(store)
        with pytest.raises(Conflict, match="still held by job s-0"):
            store.instances.hand_over(held.id, "s-1", 1, NOW + 10)
        _end_first(store)
        add_job(store, "alone")
        with pytest.raises(Conflict, match="different studies"):
            store.instances.hand_over(held.id, "alone", 1, NOW + 10)
        with pytest.raises(UnknownJob):
            store.instances.hand_over(held.id, "s-2", 1, NOW + 10)
        store.instances.take_back(held.id, NOW + 30, NOW + 11)
        with pytest.raises(Conflict, match="is ending"):
            store.instances.hand_over(held.id, "s-1", 1, NOW + 12)
        store.jobs.set_phase("s-1", JobPhase.FAILED, NOW + 13)
        with pytest.raises(Conflict, match="s-1 is failed"):
            store.instances.hand_over(held.id, "s-1", 1, NOW + 14)
        assert store.instances.get(held.id).job == "s-0"
        assert len(store.ledger.entries()) == 1

    def test_a_released_instance_passes_to_another_job_and_back(self, store: Store) -> None:
        held = _joined(store)
        for turn, job in enumerate(("s-1", "s-0", "s-0")):
            store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 5 + 10 * turn)
            store.instances.release(held.id, NOW + 6 + 10 * turn)
            with pytest.raises(Conflict, match="still held"):
                store.instances.hand_over(held.id, "s-1" if turn != 1 else "s-0", 1, NOW + 7)
            store.instances.record_node(held.id, InstancePhase.DRAINED, NOW + 8 + 10 * turn)
            moved = store.instances.hand_over(held.id, job, 1, NOW + 9 + 10 * turn)
            assert (moved.id, moved.job, moved.desired) == (held.id, job, Desired.PRESENT)
            assert moved.draining_seconds is None
            if job == "s-1":
                assert order(store, "s-0").id != held.id, "ids are given once"
        store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 40)
        store.instances.release(held.id, NOW + 41)
        store.instances.record_node(held.id, InstancePhase.DRAINED, NOW + 42)
        store.instances.request_termination(held.id, NOW + 43)
        with pytest.raises(Conflict, match="is ending"):
            store.instances.hand_over(held.id, "s-1", 1, NOW + 44)
        assert (
            sum(charge.seconds for charge in Ledger(store.ledger.entries()).charges(NOW + 101))
            == 100
        )


def _joined(store: Store) -> HeldInstance:
    """Return an instance of the first of two trials, whose node agent has joined."""
    for number in range(2):
        store.jobs.add(replace(spec(f"s-{number}"), study="s"), NOW)
    held = launch(store, "s-0")
    return store.instances.record_node(held.id, InstancePhase.PREPARING, NOW + 2)


def _end_first(store: Store) -> None:
    for phase in (JobPhase.RUNNING, JobPhase.FINISHED):
        store.jobs.set_phase("s-0", phase, NOW + 6)
