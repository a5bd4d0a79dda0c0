"""Contract of a store for instances that wait in their cloud's queue."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.instance import CloudInstance, CloudState, Desired, InstancePhase
from autoscaler.domain.intent import IntentKind, IntentState
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, end, listed_instance, order


def waiting(instance: str, state: CloudState = CloudState.QUEUED) -> CloudInstance:
    """Return the instance as its cloud lists it while it is queued."""
    return replace(listed_instance(instance, state), launched_seconds=None)


class QueueConformance:
    def test_a_queued_instance_is_not_billed(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        for second in (1, 500):
            held = store.instances.observe_cloud(held.id, waiting(held.id), NOW + second)
        assert (held.phase, held.cloud_id) == (InstancePhase.QUEUED, "i-digits-0-1")
        assert (held.launched_seconds, held.costing_usd_per_hour) == (None, 0)
        assert store.ledger.entries() == ()
        (launch,) = store.intents.of_instance(held.id)
        assert launch.state is IntentState.DONE

    def test_a_bill_opens_when_a_queued_instance_gets_capacity(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        store.instances.observe_cloud(held.id, waiting(held.id), NOW + 1)
        booting = listed_instance(held.id, CloudState.PENDING, launched_seconds=NOW + 3000)
        for second in (3001, 3002):
            held = store.instances.observe_cloud(held.id, booting, NOW + second)
        assert (held.phase, held.launched_seconds) == (InstancePhase.BOOTING, NOW + 3000)
        assert held.costing_usd_per_hour == held.usd_per_hour
        end(store, held.id, NOW + 3100)
        assert [line.at_seconds for line in store.ledger.entries()] == [NOW + 3000, NOW + 3100]

    def test_an_order_that_ends_in_the_queue_is_not_billed(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        store.instances.observe_cloud(held.id, waiting(held.id), NOW + 1)
        released = store.instances.release(held.id, NOW + 50)
        assert (released.phase, released.desired) == (InstancePhase.QUEUED, Desired.ABSENT)
        store.instances.request_termination(held.id, NOW + 50)
        ended = replace(waiting(held.id, CloudState.TERMINATED), ended_seconds=NOW + 60)
        for second in (61, 90):
            held = store.instances.observe_cloud(held.id, ended, NOW + second)
        assert (held.phase, held.ended_seconds) == (InstancePhase.ENDED, NOW + 60)
        assert store.instances.alive() == ()
        assert store.ledger.entries() == ()
        states = {intent.kind: intent.state for intent in store.intents.of_instance(held.id)}
        assert states == dict.fromkeys(IntentKind, IntentState.DONE)

    def test_a_queued_order_that_was_given_up_is_terminated(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        store.instances.launch_failed(held.id, "no answer", NOW + 1)
        for _ in range(2):
            held = store.instances.observe_cloud(held.id, waiting(held.id), NOW + 2)
        assert held.phase is InstancePhase.ENDED
        (intent,) = store.intents.pending(NOW + 2)
        assert (intent.kind, intent.instance) == (IntentKind.TERMINATE, held.id)

    def test_an_ended_order_that_gets_capacity_is_billed_and_terminated(
        self, store: Store
    ) -> None:
        add_job(store)
        held = order(store)
        store.instances.observe_cloud(held.id, waiting(held.id), NOW + 1)
        ended = replace(waiting(held.id, CloudState.TERMINATED), ended_seconds=NOW + 9)
        store.instances.observe_cloud(held.id, ended, NOW + 9)
        store.instances.observe_cloud(
            held.id, listed_instance(held.id, launched_seconds=NOW + 20), NOW + 21
        )
        (intent,) = store.intents.pending(NOW + 21)
        assert intent.kind is IntentKind.TERMINATE
        end(store, held.id, NOW + 30)
        assert [line.at_seconds for line in store.ledger.entries()] == [NOW + 20, NOW + 30]
