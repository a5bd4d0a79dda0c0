"""What every store makes of instances that wait in their cloud's queue."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.instance import CloudInstance, CloudState, Desired, InstancePhase
from autoscaler.domain.intent import IntentKind, IntentState
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, end, order, seen


def waiting(instance: str, state: CloudState = CloudState.QUEUED) -> CloudInstance:
    """The instance in its cloud's queue."""
    return replace(seen(instance, state), launched_seconds=None)


class QueueConformance:
    def test_what_waits_in_a_queue_is_not_billed(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        for second in (1, 500):
            held = store.instances.observe_cloud(held.id, waiting(held.id), NOW + second)
        assert (held.phase, held.cloud_id) == (InstancePhase.QUEUED, "i-digits-0-1")
        assert (held.launched_seconds, held.costing_usd_per_hour) == (None, 0)
        assert store.ledger.entries() == ()
        (launch,) = store.intents.of_instance(held.id)
        assert launch.state is IntentState.DONE

    def test_its_bill_opens_when_it_gets_capacity(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        store.instances.observe_cloud(held.id, waiting(held.id), NOW + 1)
        there = seen(held.id, CloudState.PENDING, launched_seconds=NOW + 3000)
        for second in (3001, 3002):
            held = store.instances.observe_cloud(held.id, there, NOW + second)
        assert (held.phase, held.launched_seconds) == (InstancePhase.BOOTING, NOW + 3000)
        assert held.costing_usd_per_hour == held.usd_per_hour
        end(store, held.id, NOW + 3100)
        assert [line.at_seconds for line in store.ledger.entries()] == [NOW + 3000, NOW + 3100]

    def test_what_ends_in_the_queue_leaves_no_bill(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        store.instances.observe_cloud(held.id, waiting(held.id), NOW + 1)
        released = store.instances.release(held.id, NOW + 50)
        assert (released.phase, released.desired) == (InstancePhase.QUEUED, Desired.ABSENT)
        store.instances.request_termination(held.id, NOW + 50)
        gone = replace(waiting(held.id, CloudState.TERMINATED), ended_seconds=NOW + 60)
        for second in (61, 90):
            held = store.instances.observe_cloud(held.id, gone, NOW + second)
        assert (held.phase, held.ended_seconds) == (InstancePhase.ENDED, NOW + 60)
        assert store.instances.alive() == ()
        assert store.ledger.entries() == ()
        states = {intent.kind: intent.state for intent in store.intents.of_instance(held.id)}
        assert states == dict.fromkeys(IntentKind, IntentState.DONE)

    def test_what_was_given_up_and_waits_in_a_queue_is_taken_out_of_it(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        store.instances.launch_failed(held.id, "no answer", NOW + 1)
        for _ in range(2):
            held = store.instances.observe_cloud(held.id, waiting(held.id), NOW + 2)
        assert held.phase is InstancePhase.ENDED
        (told,) = (one for one in store.intents.pending(NOW + 2))
        assert (told.kind, told.instance) == (IntentKind.TERMINATE, held.id)

    def test_what_got_capacity_after_it_was_buried_is_billed_and_terminated(
        self, store: Store
    ) -> None:
        add_job(store)
        held = order(store)
        store.instances.observe_cloud(held.id, waiting(held.id), NOW + 1)
        gone = replace(waiting(held.id, CloudState.TERMINATED), ended_seconds=NOW + 9)
        store.instances.observe_cloud(held.id, gone, NOW + 9)
        store.instances.observe_cloud(held.id, seen(held.id, launched_seconds=NOW + 20), NOW + 21)
        (told,) = (one for one in store.intents.pending(NOW + 21))
        assert told.kind is IntentKind.TERMINATE
        end(store, held.id, NOW + 30)
        assert [line.at_seconds for line in store.ledger.entries()] == [NOW + 20, NOW + 30]
