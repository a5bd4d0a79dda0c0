"""Contract of a store for instances, the cloud calls made for them, and their bills."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.errors import Conflict, UnknownInstance, UnknownJob
from autoscaler.domain.gang import GangSeat
from autoscaler.domain.instance import CloudState, Desired, HeldInstance, InstancePhase
from autoscaler.domain.intent import LONGEST_WAIT_SECONDS, IntentKind, IntentState
from autoscaler.domain.job import JobPhase
from autoscaler.domain.offer import Offer
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.ledger.bill import amount
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.repositories.capacity import LONGEST_REFUSAL_SECONDS, Refusal
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    add_job,
    end,
    launch,
    listed_instance,
    offer,
    order,
)


class InstancesConformance:
    def test_an_order_is_an_instance_and_the_intent_to_launch_it(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        assert (held.id, held.slot, held.generation) == ("digits-0-1", 0, 1)
        assert (held.desired, held.phase) == (Desired.PRESENT, InstancePhase.REQUESTED)
        assert str(held.usd_per_hour) == "0.0500"
        assert store.instances.get(held.id) == held
        (intent,) = store.intents.pending(NOW)
        assert (intent.kind, intent.instance) == (IntentKind.LAUNCH, held.id)
        assert (intent.token, intent.attempts) == ("token of digits-0-1", 0)

    def test_the_lowest_free_slot_is_filled_by_its_next_generation(self, store: Store) -> None:
        add_job(store)
        for _ in range(3):
            launch(store)
        end(store, "digits-0-1")
        end(store, "digits-1-1")
        assert [order(store).id for _ in range(3)] == ["digits-0-2", "digits-1-2", "digits-3-1"]

    def test_slots_are_of_one_job(self, store: Store) -> None:
        add_job(store, "a")
        add_job(store, "b")
        assert [order(store, job).id for job in ("a", "b", "a")] == ["a-0-1", "b-0-1", "a-1-1"]
        assert [held.id for held in store.instances.of_job("a")] == ["a-0-1", "a-1-1"]
        assert len(store.instances.alive()) == 3

    def test_a_bounded_order_counts_held_instances_in_its_transaction(self, store: Store) -> None:
        add_job(store)
        cheap, other = offer(), offer("local-large")

        def order_up_to(maximum: int, ordered_offer: Offer = cheap) -> HeldInstance | None:
            token = "token of {}".format
            return store.instances.order_up_to(maximum, "digits", ordered_offer, 1, token, NOW)

        with ThreadPoolExecutor(8) as pool:
            ordered = list(pool.map(lambda _: order_up_to(3), range(8)))
        assert sum(held is not None for held in ordered) == 3
        assert order_up_to(1, other) is not None
        first = store.instances.of_job("digits")[0]
        store.instances.release(first.id, NOW)
        assert order_up_to(3) is not None, "a leaving instance does not count"
        assert order_up_to(3) is None

    def test_a_seat_in_a_gang_stays_with_its_instance(self, store: Store) -> None:
        add_job(store)
        token, seat = "token of {}".format, GangSeat(2, 1, 4)
        held = store.instances.order_up_to(
            1, "digits", offer(), 1, token, NOW, seat=GangSeat(2, 1, 4)
        )
        assert held is not None and held.seat == seat
        store.instances.record_node(held.id, InstancePhase.PREPARING, NOW)
        assert store.instances.get(held.id).seat == seat

    def test_an_order_of_several_offers_is_billed_for_the_launched_one(self, store: Store) -> None:
        """Bill the launched offer; before the launch, budgets count the dearest offer."""
        add_job(store)
        others = (offer("zone-b", "0.0510"), offer("zone-c", "0.0490"))
        token = "token of {}".format
        held = store.instances.order_up_to(9, "digits", offer(), 1, token, NOW, others)
        assert held is not None
        assert (held.offer, held.usd_per_hour) == ("local-small", Decimal("0.0510"))
        assert held.alternatives == ("zone-b", "zone-c")
        assert store.instances.get(held.id) == held
        after = store.instances.observe_cloud(
            held.id, replace(listed_instance(held.id), offer="zone-c"), NOW + 2
        )
        assert (after.offer, after.ordered_offer) == ("zone-c", "local-small")
        assert after.usd_per_hour == Decimal("0.0490")
        (line,) = store.ledger.entries()
        assert (line.offer, line.usd_per_hour) == ("zone-c", Decimal("0.0490"))
        planned = store.instances.order_up_to(9, "digits", offer(), 1, token, NOW, others)
        assert planned is not None
        after = store.instances.observe_cloud(planned.id, listed_instance(planned.id), NOW + 2)
        assert (after.offer, after.usd_per_hour) == ("local-small", Decimal("0.0500"))

    def test_concurrent_orders_get_different_slots(self, store: Store) -> None:
        add_job(store)
        with ThreadPoolExecutor(8) as pool:
            slots = [held.slot for held in pool.map(lambda _: order(store), range(24))]
        assert sorted(slots) == list(range(24))
        assert len(store.intents.pending(NOW)) == 24

    def test_a_failed_order_leaves_nothing(self, store: Store) -> None:
        add_job(store)
        with pytest.raises(ZeroDivisionError):
            store.instances.order("digits", offer(), 1, lambda _: str(1 / 0), NOW)
        assert store.instances.alive() == ()
        assert order(store).id == "digits-0-1"

    def test_orders_of_a_stopping_job_are_refused(self, store: Store) -> None:
        add_job(store)
        store.jobs.request_stop("digits", NOW)
        with pytest.raises(Conflict, match="stopping"):
            order(store)
        with pytest.raises(UnknownJob):
            order(store, "unknown")

    def test_an_unknown_instance_is_an_error(self, store: Store) -> None:
        with pytest.raises(UnknownInstance, match="digits-0-1"):
            store.instances.get("digits-0-1")

    def test_ended_instances_are_shown_on_request(self, store: Store) -> None:
        add_job(store)
        launch(store)
        end(store, "digits-0-1")
        order(store)
        assert [held.id for held in store.instances.of_job("digits")] == ["digits-0-2"]
        everything = store.instances.of_job("digits", include_ended=True)
        assert [held.id for held in everything] == ["digits-0-1", "digits-0-2"]

    def test_untrained_instances_are_listed_since_the_last_one_that_trained(
        self, store: Store
    ) -> None:
        add_job(store)
        refused = order(store)
        store.instances.launch_failed(refused.id, "none left", NOW)
        first, working, last = launch(store), launch(store), launch(store)
        end(store, first.id, NOW + 20)
        assert [held.id for held in store.instances.never_trained("digits")] == [first.id]
        store.instances.record_node(working.id, InstancePhase.TRAINING, NOW + 30)
        assert store.instances.never_trained("digits") == ()
        end(store, last.id, NOW + 40)
        end(store, working.id, NOW + 50)
        assert [held.id for held in store.instances.never_trained("digits")] == [last.id]

    def test_an_instance_at_work_drains_when_it_is_released(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        assert store.instances.release(order(store).id, NOW).phase is InstancePhase.REQUESTED
        store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 2)
        store.instances.release(held.id, NOW + 3)
        released = store.instances.release(held.id, NOW + 4)
        assert (released.desired, released.phase) == (Desired.ABSENT, InstancePhase.DRAINING)
        assert released.draining_seconds == NOW + 3

    def test_reports_of_a_node_advance_the_phase_of_its_instance(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        steps = [
            (InstancePhase.PREPARING, InstancePhase.PREPARING),
            (InstancePhase.TRAINING, InstancePhase.TRAINING),
            (InstancePhase.WAITING, InstancePhase.WAITING),
            (InstancePhase.READY, InstancePhase.READY),
            (InstancePhase.STARTING, InstancePhase.STARTING),
            (InstancePhase.TRAINING, InstancePhase.TRAINING),
            (InstancePhase.DRAINING, InstancePhase.DRAINING),
            (InstancePhase.TRAINING, InstancePhase.DRAINING),
            (InstancePhase.DRAINED, InstancePhase.DRAINED),
            (InstancePhase.DRAINING, InstancePhase.DRAINED),
        ]
        for second, (reported, expected) in enumerate(steps):
            held = store.instances.record_node(held.id, reported, NOW + second, {str(second): "x"})
            assert held.phase is expected
        assert (held.joined_seconds, held.training_seconds) == (NOW, NOW + 1)
        assert held.seen_seconds == NOW + 9
        assert held.facts == {str(second): "x" for second in range(10)}

    def test_only_the_cloud_can_report_an_end(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        with pytest.raises(Conflict, match="ended"):
            store.instances.record_node(held.id, InstancePhase.ENDED, NOW)
        end(store, held.id)
        later = store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 200)
        assert (later.phase, later.seen_seconds) == (InstancePhase.ENDED, None)

    def test_a_back_off_that_is_longer_than_any_is_over(self, store: Store) -> None:
        longest_seconds = NOW + LONGEST_REFUSAL_SECONDS
        store.capacity.refused("a", "QuotaExceeded", NOW, longest_seconds)
        store.capacity.refused("b", "QuotaExceeded", NOW, longest_seconds + 1)
        assert store.capacity.unavailable(NOW) == {"a"}, "the clock was set back"
        again = store.capacity.refused("b", "QuotaExceeded", NOW, NOW + 15)
        assert (again.until_seconds, again.in_a_row) == (NOW + 15, 2)

    def test_a_refusal_is_amended_only_if_there_is_one(self, store: Store) -> None:
        store.capacity.refused("a", "InsufficientCapacity", NOW, NOW + 180)
        for name in ("a", "b"):
            store.capacity.amend(name, lambda known: replace(known, until_seconds=NOW + 15))
        assert store.capacity.refusals().keys() == {"a"}
        assert store.capacity.unavailable(NOW + 14) == {"a"}
        assert store.capacity.unavailable(NOW + 15) == frozenset()

    def test_the_earliest_notice_of_a_reclaim_counts(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        for reclaim_seconds in (NOW + 30, NOW + 20, NOW + 40):
            store.instances.take_back(held.id, reclaim_seconds, NOW + 10)
        assert store.instances.get(held.id).reclaim_seconds == NOW + 20

    def test_an_instance_that_is_taken_back_is_released_with_its_notice(
        self, store: Store
    ) -> None:
        add_job(store)
        held = store.instances.take_back(launch(store).id, NOW + 30, NOW + 10)
        assert (held.desired, held.draining_seconds) == (Desired.ABSENT, NOW + 10)
        assert held.reclaim_seconds == NOW + 30

    def test_a_failed_launch_refuses_its_offer_in_the_same_transaction(self, store: Store) -> None:
        add_job(store)
        held, other = order(store), order(store)

        def refuse(known: Refusal | None) -> Refusal:
            return Refusal(held.offer, "InsufficientCapacity", 1, NOW + 15).after(known, NOW)

        def break_down(known: Refusal | None) -> Refusal:
            raise RuntimeError("the process dies here")

        with pytest.raises(RuntimeError):
            store.instances.launch_failed(held.id, "none left", NOW, break_down)
        assert store.instances.get(held.id).phase is InstancePhase.REQUESTED
        store.instances.launch_failed(held.id, "none left", NOW, refuse)
        assert store.capacity.unavailable(NOW + 14) == {held.offer}
        given_up = store.instances.give_up_launch(other.id, NOW, refuse)
        assert (given_up.desired, given_up.phase) == (Desired.ABSENT, InstancePhase.REQUESTED)
        assert store.capacity.refusals()[held.offer].in_a_row == 1, "one wave counts once"


class BillingConformance:
    def test_the_bill_opens_and_closes_once(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        for _ in range(2):
            running = store.instances.observe_cloud(held.id, listed_instance(held.id), NOW + 9)
        assert (running.phase, running.cloud_id) == (InstancePhase.BOOTING, "i-digits-0-1")
        assert running.launched_seconds == NOW + 1
        for second in (100, 200):
            ended = end(store, held.id, NOW + second)
        assert (ended.phase, ended.ended_seconds) == (InstancePhase.ENDED, NOW + 100)
        price = Decimal("0.0500")
        opening = LedgerEntry(EntryKind.OPEN, held.id, "digits", "local-small", price, NOW + 1, 60)
        closing = replace(opening, kind=EntryKind.CLOSE, at_seconds=NOW + 100)
        assert store.ledger.entries() == (opening, closing)
        assert str(store.ledger.entries()[0].usd_per_hour) == "0.0500"

    def test_extras_of_an_instance_are_shown_apart_in_its_bill(self, store: Store) -> None:
        add_job(store)
        dear = replace(offer(), extras_usd_per_hour=Decimal("0.0100"))
        held = store.instances.order("digits", dear, 1, "token of {}".format, NOW)
        assert store.instances.get(held.id).extras_usd_per_hour == Decimal("0.01")
        store.instances.observe_cloud(held.id, listed_instance(held.id), NOW + 1)
        end(store, held.id, NOW + 3601)
        opening, closing = store.ledger.entries()
        assert str(opening.extras_usd_per_hour) == str(closing.extras_usd_per_hour) == "0.0100"
        charges = Ledger(store.ledger.entries()).charges(NOW + 9000)
        assert sum(charge.usd for charge in charges) == Decimal("0.05")
        assert sum(charge.extras_usd for charge in charges) == Decimal("0.01")

    def test_threads_that_observe_one_state_record_it_once(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        ended = listed_instance(held.id, CloudState.TERMINATED, ended_seconds=NOW + 100)

        def observe(turn: int) -> None:
            listed = ended if turn % 2 else listed_instance(held.id)
            store.instances.observe_cloud(held.id, listed, NOW + turn)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(observe, range(16)))
        kinds = [entry.kind for entry in store.ledger.entries()]
        assert kinds == [EntryKind.OPEN, EntryKind.CLOSE]

    def test_only_the_cloud_ends_an_instance(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        store.instances.record_node(held.id, InstancePhase.DRAINED, NOW + 2)
        store.instances.request_termination(held.id, NOW + 3)
        stopping = listed_instance(held.id, CloudState.STOPPING)
        store.instances.observe_cloud(held.id, stopping, NOW + 4)
        assert [held.id for held in store.instances.alive()] == ["digits-0-1"]
        assert len(store.ledger.entries()) == 1

    def test_an_end_without_a_time_is_now_and_never_before_the_launch(self, store: Store) -> None:
        add_job(store)
        first, second = launch(store), launch(store)
        terminated = listed_instance(first.id, CloudState.TERMINATED)
        ended = store.instances.observe_cloud(first.id, terminated, NOW + 50)
        assert ended.ended_seconds == NOW + 50
        assert end(store, second.id, NOW - 50).ended_seconds == NOW + 1

    def test_two_cloud_instances_for_one_order_are_refused(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        double = replace(listed_instance(held.id), id="i-double")
        with pytest.raises(Conflict, match="terminate i-double"):
            store.instances.observe_cloud(held.id, double, NOW)

    def test_a_refused_launch_costs_nothing(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        store.instances.begin_launch(held.id, NOW)
        store.instances.request_termination(held.id, NOW)
        ended = store.instances.launch_failed(held.id, "none left", NOW + 2)
        assert (ended.phase, ended.ended_seconds) == (InstancePhase.ENDED, NOW + 2)
        assert store.ledger.entries() == ()
        assert store.intents.pending(NOW + 9) == ()
        intents = store.intents.of_instance(held.id)
        assert [(intent.state, intent.error) for intent in intents] == [
            (IntentState.FAILED, "none left")
        ] * 2
        assert order(store).id == "digits-0-2"

    def test_an_ended_instance_listed_again_is_billed_and_terminated(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        store.instances.request_termination(held.id, NOW + 50)
        assert not store.instances.bill_again(held.id, NOW + 60)
        end(store, held.id, NOW + 100)
        assert store.instances.bill_again(held.id, NOW + 300)
        assert not store.instances.bill_again(held.id, NOW + 301)
        assert [intent.kind for intent in store.intents.pending(NOW + 300)] == [
            IntentKind.TERMINATE
        ]
        ended = end(store, held.id, NOW + 400)
        assert (ended.phase, ended.ended_seconds) == (InstancePhase.ENDED, NOW + 400)
        ledger = Ledger(store.ledger.entries())
        assert ledger.total(NOW + 900) == amount(held.usd_per_hour, 399)
        assert store.instances.bill_again(held.id, NOW + 500)
        end(store, held.id, NOW + 400)
        assert Ledger(store.ledger.entries()).total(NOW + 900) == ledger.total(NOW + 900)

    def test_a_changed_price_is_billed_from_its_change(self, store: Store) -> None:
        add_job(store)
        cheap, dear = offer(), offer(usd_per_hour="0.1500")
        assert not store.instances.reprice(order(store).id, dear, NOW), "the order has no bill yet"
        held = launch(store)
        assert store.instances.reprice(held.id, dear, NOW + 61)
        assert not store.instances.reprice(held.id, dear, NOW + 62)
        assert store.instances.get(held.id).usd_per_hour == dear.usd_per_hour
        first = amount(cheap.usd_per_hour, 60)
        assert Ledger(store.ledger.entries()).total(NOW + 161) == first + amount(
            dear.usd_per_hour, 100
        )
        end(store, held.id, NOW + 50)  # the cloud reports an end before the new price
        assert Ledger(store.ledger.entries()).total(NOW + 999) == first
        assert not store.instances.reprice(held.id, cheap, NOW + 200)

    def test_a_launched_instance_can_not_fail_its_launch(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        with pytest.raises(Conflict, match="i-digits-0-1"):
            store.instances.launch_failed(held.id, "none left", NOW)

    def test_an_instance_that_was_given_up_is_billed_and_terminated(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        store.instances.begin_launch(held.id, NOW)
        store.instances.request_termination(held.id, NOW)
        store.instances.launch_failed(held.id, "no answer", NOW)
        late = store.instances.observe_cloud(held.id, listed_instance(held.id), NOW + 9)
        assert (late.phase, late.cloud_id) == (InstancePhase.ENDED, "i-digits-0-1")
        (intent,) = store.intents.pending(NOW + 9)
        assert (intent.kind, intent.instance) == (IntentKind.TERMINATE, held.id)
        end(store, held.id)
        assert [entry.kind for entry in store.ledger.entries("digits")] == [
            EntryKind.OPEN,
            EntryKind.CLOSE,
        ]


class IntentsConformance:
    def test_an_unwanted_launch_that_was_never_sent_ends_at_once_unbilled(
        self, store: Store
    ) -> None:
        add_job(store)
        held = order(store)
        ended = store.instances.request_termination(held.id, NOW + 3, {"why": "stopped"})
        assert (ended.phase, ended.ended_seconds) == (InstancePhase.ENDED, NOW + 3)
        assert ended.facts["why"] == "stopped"
        assert store.intents.pending(NOW + 9) == ()
        (intent,) = store.intents.of_instance(held.id)
        assert intent.state is IntentState.FAILED
        assert store.ledger.entries() == ()

    def test_a_call_that_waits_for_longer_than_any_back_off_is_due(self, store: Store) -> None:
        add_job(store)
        order(store)
        (intent,) = store.intents.pending(NOW)
        store.intents.failed(intent.id, "no answer", NOW + LONGEST_WAIT_SECONDS)
        assert store.intents.pending(NOW) == ()
        store.intents.failed(intent.id, "no answer", NOW + LONGEST_WAIT_SECONDS + 1)
        assert len(store.intents.pending(NOW)) == 1, "the clock was set back"

    def test_a_launch_is_marked_as_sent_before_its_call(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        assert store.instances.begin_launch(held.id, NOW + 1)
        (intent,) = store.intents.pending(NOW + 1)
        assert intent.sent_seconds == NOW + 1
        store.intents.failed(intent.id, "no answer", NOW + 10)
        (intent,) = store.intents.pending(NOW + 10)
        assert intent.sent_seconds == NOW + 1, "the outcome of the first call is not known"

    def test_a_definite_refusal_clears_the_sent_mark(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        assert store.instances.begin_launch(held.id, NOW + 1)
        (intent,) = store.intents.pending(NOW + 1)
        store.intents.failed(intent.id, "throttled", NOW + 10, is_unsent=True)
        (intent,) = store.intents.pending(NOW + 10)
        assert intent.sent_seconds is None
        assert store.instances.request_termination(held.id, NOW + 11).phase is InstancePhase.ENDED

    def test_an_unwanted_launch_of_unknown_outcome_is_not_sent_again(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        assert store.instances.begin_launch(held.id, NOW)
        store.instances.release(held.id, NOW + 1)
        assert not store.instances.begin_launch(held.id, NOW + 2)
        assert store.instances.get(held.id).phase is InstancePhase.REQUESTED
        (intent,) = store.intents.of_instance(held.id)
        assert (intent.state, intent.sent_seconds) == (IntentState.PENDING, NOW)

    @pytest.mark.parametrize("phase", [JobPhase.STOPPING, JobPhase.FAILED])
    def test_a_job_that_ends_drops_its_unsent_launches(
        self, store: Store, phase: JobPhase
    ) -> None:
        job = add_job(store)
        held = order(store)
        store.jobs.set_phase(job, phase, NOW + 1, "it ends")
        assert not store.instances.begin_launch(held.id, NOW + 2)
        assert store.instances.get(held.id).phase is InstancePhase.ENDED
        assert store.ledger.entries() == ()

    def test_a_launch_that_is_settled_is_not_sent(self, store: Store) -> None:
        add_job(store)
        assert not store.instances.begin_launch(launch(store).id, NOW + 2)
        refused = order(store)
        store.instances.launch_failed(refused.id, "none left", NOW)
        assert not store.instances.begin_launch(refused.id, NOW + 2)

    def test_an_instance_that_is_seen_was_launched(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        assert store.intents.pending(NOW + 9) == ()
        (intent,) = store.intents.of_instance(held.id)
        store.intents.done(intent.id)
        store.intents.failed(intent.id, "a late answer", NOW)
        assert store.intents.of_instance(held.id) == (intent,)
        assert intent.state is IntentState.DONE

    def test_a_call_is_made_again_after_its_back_off(self, store: Store) -> None:
        add_job(store)
        order(store)
        (intent,) = store.intents.pending(NOW)
        store.intents.failed(intent.id, "throttled", NOW + 10)
        assert store.intents.pending(NOW + 9) == ()
        (repeated,) = store.intents.pending(NOW + 10)
        assert (repeated.token, repeated.attempts, repeated.error) == (
            intent.token,
            1,
            "throttled",
        )
        store.intents.done(intent.id)
        assert store.intents.pending(NOW + 10) == ()

    def test_a_launch_is_given_up_with_its_instance(self, store: Store) -> None:
        add_job(store)
        order(store)
        (intent,) = store.intents.pending(NOW)
        with pytest.raises(Conflict, match="end its instance, digits-0-1"):
            store.intents.failed(intent.id, "no quota", None)

    def test_termination_is_asked_for_once(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        for _ in range(2):
            terminating = store.instances.request_termination(held.id, NOW + 3)
        assert (terminating.desired, terminating.draining_seconds) == (Desired.ABSENT, NOW + 3)
        (intent,) = store.intents.pending(NOW + 3)
        assert (intent.kind, intent.token) == (IntentKind.TERMINATE, "token of digits-0-1")
        store.intents.done(intent.id)
        store.instances.request_termination(held.id, NOW + 4)
        assert store.intents.pending(NOW + 4) == ()

    def test_termination_waits_for_the_launch(self, store: Store) -> None:
        add_job(store)
        held = order(store)
        assert store.instances.begin_launch(held.id, NOW)
        store.instances.request_termination(held.id, NOW)
        assert [intent.kind for intent in store.intents.pending(NOW)] == [IntentKind.LAUNCH]
        store.instances.observe_cloud(held.id, listed_instance(held.id), NOW + 1)
        assert [intent.kind for intent in store.intents.pending(NOW)] == [IntentKind.TERMINATE]

    def test_termination_without_effect_or_given_up_is_asked_for_again(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        store.instances.request_termination(held.id, NOW)
        (intent,) = store.intents.pending(NOW)
        store.intents.done(intent.id)
        store.intents.failed(intent.id, "it still runs", NOW + 60)
        assert [repeated.id for repeated in store.intents.pending(NOW + 60)] == [intent.id]
        store.intents.failed(intent.id, "no permission", None)
        assert store.intents.pending(NOW + 60) == ()
        store.instances.request_termination(held.id, NOW + 70)
        assert [repeated.id for repeated in store.intents.pending(NOW + 70)] == [intent.id]

    def test_an_ended_instance_is_not_terminated(self, store: Store) -> None:
        add_job(store)
        first, second = launch(store), launch(store)
        store.instances.request_termination(first.id, NOW)
        end(store, first.id)
        end(store, second.id)
        store.instances.request_termination(second.id, NOW)
        assert store.intents.pending(NOW + 200) == ()

    def test_an_unknown_intent_is_an_error(self, store: Store) -> None:
        with pytest.raises(Conflict, match="no intent 7"):
            store.intents.done(7)

    def test_instances_of_an_ended_job_are_still_terminated(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        store.jobs.set_phase("digits", JobPhase.FAILED, NOW)
        store.instances.request_termination(held.id, NOW)
        assert len(store.intents.pending(NOW)) == 1


class CapacityConformance:
    def test_a_refused_offer_is_unavailable_until_its_time(self, store: Store) -> None:
        store.capacity.refused("a", "InsufficientCapacity", NOW, NOW + 180)
        store.capacity.refused("b", "QuotaExceeded", NOW, NOW + 3600, "0 vCPUs")
        assert store.capacity.unavailable(NOW) == {"a", "b"}
        assert store.capacity.unavailable(NOW + 180) == {"b"}
        refusal = store.capacity.refusals()["b"]
        assert (refusal.error_kind, refusal.reason) == ("QuotaExceeded", "0 vCPUs")

    def test_refusals_in_a_row_count_waves_of_launches(self, store: Store) -> None:
        for now_seconds, waves in ((NOW, 1), (NOW + 1, 1), (NOW + 200, 2), (NOW + 900, 3)):
            refusal = store.capacity.refused("a", "none", now_seconds, now_seconds + 180)
            assert refusal.in_a_row == waves
        assert store.capacity.refusals()["a"] == refusal
        store.capacity.accepted("a")
        assert store.capacity.unavailable(NOW) == frozenset()
        assert store.capacity.refused("a", "none", NOW, NOW + 180).in_a_row == 1
