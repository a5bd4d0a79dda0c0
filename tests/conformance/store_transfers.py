"""Contract of a store for bytes that instances send to, and fetch from, the jobs' storage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.domain.transfer import MOST_BYTES, Transfer, TransferCount
from autoscaler.ledger.bill import amount
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    add_job,
    end,
    far_offer,
    launch,
    listed_instance,
    offer,
    order,
    spec,
)

GB = 10**9


def report_count(
    store: Store,
    instance: str,
    sent_bytes: int,
    fetched_bytes: int = 0,
    begun_seconds: float = NOW,
    now_seconds: float = NOW + 10,
    job: str | None = None,
) -> HeldInstance:
    """Record the transfer count that an instance reports."""
    count = TransferCount(begun_seconds, Transfer(sent_bytes, fetched_bytes))
    phase = InstancePhase.TRAINING
    return store.instances.record_node(instance, phase, now_seconds, None, job, count)


def sent(store: Store) -> list[LedgerEntry]:
    return [line for line in store.ledger.entries() if line.kind is EntryKind.TRANSFER]


class TransfersConformance:
    def test_transfers_are_booked_at_the_prices_of_the_order(self, store: Store) -> None:
        add_job(store)
        held = launch(store, of=far_offer())
        report_count(store, held.id, 2 * GB, 1 * GB)
        (line,) = sent(store)
        assert (line.instance, line.job, line.offer) == (held.id, "digits", "local-small")
        assert (line.usd, line.sent_bytes, line.fetched_bytes) == (Decimal("0.33"), 2 * GB, GB)
        assert (line.at_seconds, line.usd_per_hour) == (NOW + 10, 0)
        ledger = Ledger(store.ledger.entries("digits"))
        assert ledger.spent("digits", NOW + 61) == Decimal("0.33") + amount(held.usd_per_hour, 60)
        assert store.instances.get(held.id).transfer.owed == Transfer()

    def test_a_repeated_or_late_count_is_booked_once(self, store: Store) -> None:
        add_job(store)
        held = launch(store, of=far_offer())
        for sent_bytes in (GB, GB, 3 * GB, 2 * GB, GB, 3 * GB):
            report_count(store, held.id, sent_bytes)
        assert [line.sent_bytes for line in sent(store)] == [GB, 2 * GB]
        times = [line.at_seconds for line in sent(store)]
        assert times == sorted(set(times)), "each line has its own time"

    def test_a_restarted_count_replaces_the_old_one_and_adds_to_the_bill(
        self, store: Store
    ) -> None:
        add_job(store)
        held = launch(store, of=far_offer())
        report_count(store, held.id, 3 * GB)
        report_count(store, held.id, GB, begun_seconds=NOW + 5)
        report_count(store, held.id, 9 * GB)
        report_count(store, held.id, 2 * GB, begun_seconds=NOW + 5)
        assert [line.sent_bytes for line in sent(store)] == [3 * GB, GB, GB]

    def test_amounts_below_a_tenth_of_a_cent_are_booked_later(self, store: Store) -> None:
        add_job(store)
        held = launch(store, of=far_offer())
        for part in range(1, 9):
            report_count(store, held.id, part * 1_000_000, now_seconds=NOW + part)
        assert sent(store) == []
        report_count(store, held.id, 9_000_000)
        assert [line.usd for line in sent(store)] == [Decimal("0.00108")]
        report_count(store, held.id, 9_000_001)
        for _ in range(2):
            end(store, held.id)
        assert [line.sent_bytes for line in sent(store)] == [9_000_000, 1]
        report_count(store, held.id, 9_000_003, now_seconds=NOW + 200)
        assert sent(store)[-1].usd == Decimal("0.00000000024"), "reported after the end"
        kinds = [line.kind for line in store.ledger.entries()]
        assert kinds.count(EntryKind.OPEN) == kinds.count(EntryKind.CLOSE) == 1

    def test_free_transfers_are_not_booked(self, store: Store) -> None:
        add_job(store)
        nearby = launch(store)
        one_way = replace(far_offer(), download_usd_per_gb=Decimal(0))
        fetches = launch(store, of=one_way)
        for held in (nearby, fetches):
            report_count(store, held.id, 0, 500 * GB)
            end(store, held.id)
        assert sent(store) == []

    def test_an_agent_that_reports_no_counts_owes_nothing(self, store: Store) -> None:
        """Book nothing for agents of earlier versions, which report no counts."""
        add_job(store)
        held = launch(store, of=far_offer())
        store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 2)
        report_count(store, held.id, 0)
        end(store, held.id)
        assert sent(store) == []

    def test_a_count_before_the_launch_is_seen_is_billed(self, store: Store) -> None:
        add_job(store)
        held = order(store, of=far_offer())
        report_count(store, held.id, GB)
        assert Ledger(store.ledger.entries()).total(NOW) == Decimal("0.12")
        store.instances.observe_cloud(held.id, listed_instance(held.id), NOW + 20)
        assert store.instances.reprice(held.id, offer(usd_per_hour="0.10"), NOW + 61)
        report_count(store, held.id, 2 * GB, now_seconds=NOW + 61)
        end(store, held.id, NOW + 121)
        spent = amount(Decimal("0.05"), 60) + amount(Decimal("0.10"), 60)
        assert Ledger(store.ledger.entries()).total(NOW + 900) == spent + Decimal("0.24")

    def test_a_refused_launch_owes_the_bytes_it_reported(self, store: Store) -> None:
        add_job(store)
        held = order(store, of=far_offer())
        report_count(store, held.id, 1000)
        store.instances.launch_failed(held.id, "none left", NOW + 20)
        assert [line.sent_bytes for line in sent(store)] == [1000]

    def test_each_job_pays_for_what_was_sent_while_it_had_the_instance(self, store: Store) -> None:
        for number in range(2):
            store.jobs.add(replace(spec(f"s-{number}"), study="s"), NOW)
        held = launch(store, "s-0", far_offer())
        report_count(store, held.id, 5_000_000, job="s-0")
        for phase in (JobPhase.RUNNING, JobPhase.FINISHED):
            store.jobs.set_phase("s-0", phase, NOW + 20)
        moved = store.instances.hand_over(held.id, "s-1", 1, NOW + 30)
        assert moved.transfer.upload_usd_per_gb == Decimal("0.12")
        report_count(
            store, held.id, 6_000_000, job="s-0", now_seconds=NOW + 31
        )  # the agent does not know of the hand-over yet
        report_count(store, held.id, 6_000_000 + GB, job="s-1", now_seconds=NOW + 40)
        report_count(store, held.id, 6_000_000, job="s-0", now_seconds=NOW + 41)
        end(store, held.id)
        booked = [(line.job, line.sent_bytes) for line in sent(store)]
        assert booked == [("s-0", 5_000_000), ("s-0", 1_000_000), ("s-1", GB)]
        for job in ("s-0", "s-1"):
            job_ledger = Ledger(store.ledger.entries(job))
            ledger = Ledger(store.ledger.entries())
            assert job_ledger.spent(job, NOW + 900) == ledger.spent(job, NOW + 900)

    def test_a_job_that_never_had_the_instance_pays_nothing(self, store: Store) -> None:
        add_job(store)
        add_job(store, "other")
        held = launch(store, of=far_offer())
        report_count(store, held.id, GB, job="other")
        assert [line.job for line in sent(store)] == ["digits"]

    def test_threads_that_report_one_count_book_it_once(self, store: Store) -> None:
        add_job(store)
        held = launch(store, of=far_offer())
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda turn: report_count(store, held.id, (turn % 4) * GB), range(24)))
        assert sum(line.sent_bytes for line in sent(store)) == 3 * GB

    def test_the_largest_number_of_bytes_is_kept(self, store: Store) -> None:
        add_job(store)
        held = launch(store, of=far_offer())
        report_count(store, held.id, MOST_BYTES, MOST_BYTES)
        report_count(store, held.id, MOST_BYTES, MOST_BYTES, begun_seconds=NOW + 1)
        assert [line.sent_bytes for line in sent(store)] == [MOST_BYTES] * 2
        with pytest.raises(ValueError, match="is not a count from 0"):
            Transfer(-1)
