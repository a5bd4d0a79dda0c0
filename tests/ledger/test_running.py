"""Running costs against the ledger of all lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import combinations_with_replacement
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.running import CostSums, RunningCosts
from tests.ledger.test_ledger import DAY, TIMES, bills

Key = TypeVar("Key")


def line(kind: EntryKind, at_seconds: float, minimum: int = 60) -> LedgerEntry:
    return LedgerEntry(kind, "a-1", "a", "x", Decimal("3.6"), at_seconds, minimum)


def paid(amounts: Mapping[Key, Decimal]) -> dict[Key, Decimal]:
    return {key: usd for key, usd in amounts.items() if usd}


def assert_equal(sums: CostSums, ledger: Ledger, now_seconds: float) -> None:
    assert paid(sums.by_job) == paid(ledger.by_job(now_seconds))
    assert paid(sums.by_offer()) == paid(ledger.by_offer(now_seconds))
    assert paid(sums.by_day()) == paid(ledger.by_day(now_seconds))
    assert sums.total_usd == ledger.total(now_seconds)
    assert sums.paid_already == ledger.paid_already()
    assert paid(sums.transfers_by_job) == paid(ledger.transfers(lambda charge: charge.job))
    assert [cost for cost in sums.daily() if cost.usd] == [
        cost for cost in ledger.daily(now_seconds) if cost.usd
    ]


def assert_payers(running: RunningCosts, ledger: Ledger, now_seconds: float) -> None:
    charges = ledger.charges(now_seconds)
    days = sorted({charge.day for charge in charges})
    for first, last in combinations_with_replacement(days, 2):
        paying = {charge.job for charge in charges if first <= charge.day <= last}
        assert paying <= running.payers(first, last) <= {charge.job for charge in charges}


@given(lines=bills(), parts=st.integers(1, 4), times=st.lists(TIMES, min_size=4, max_size=4))
def test_sums_equal_those_of_all_lines_at_each_time(
    lines: list[LedgerEntry], parts: int, times: list[float]
) -> None:
    running, known = RunningCosts(), 0
    for part, now_seconds in zip(range(1, parts + 1), times, strict=False):
        upto = len(lines) * part // parts
        if not running.add(lines[known:upto], upto):
            running = RunningCosts()
            assert running.add(lines[:upto], upto)
        known = upto
        assert_equal(running.sums(now_seconds), Ledger(lines[:upto]), now_seconds)
        assert_payers(running, Ledger(lines[:upto]), now_seconds)


def test_open_bills_have_a_price_and_a_bill_that_goes_on_needs_all_lines() -> None:
    running = RunningCosts()
    opened, closed = line(EntryKind.OPEN, 0.0), line(EntryKind.CLOSE, 100.0)
    assert running.add([opened], 1)
    assert running.sums(50.0).usd_per_hour == Decimal("3.6")
    assert running.add([closed], 2) and running.number == 2
    assert running.sums(2 * DAY).usd_per_hour == 0
    assert running.sums(2 * DAY).total_usd == Decimal("0.1")
    assert running.add([line(EntryKind.CLOSE, 500.0)], 3)
    assert running.sums(2 * DAY).total_usd == Decimal("0.1"), "the first end counts"
    assert not running.add([line(EntryKind.OPEN, 200.0)], 4)


def test_jobs_without_a_charge_on_some_days_are_not_among_their_payers() -> None:
    running = RunningCosts()
    lines = [line(EntryKind.OPEN, DAY + 10.0), line(EntryKind.CLOSE, 2 * DAY + 10.0)]
    later = [replace(line(EntryKind.OPEN, 4 * DAY), job="b", instance="b-1")]
    assert running.add([*lines, *later], 3)
    days = [datetime.fromtimestamp(day * DAY, UTC).date() for day in range(6)]
    payers = [running.payers(day, day) for day in days[:4]]
    assert [sorted(payer) for payer in payers] == [["b"], ["a", "b"], ["a", "b"], ["b"]]
    closed = replace(line(EntryKind.CLOSE, 4 * DAY + 9.0), job="b", instance="b-1")
    assert running.add([closed], 4)
    assert [sorted(running.payers(day, day)) for day in days] == [[], ["a"], ["a"], [], ["b"], []]


def test_an_instance_that_never_ran_costs_nothing_also_after_midnight() -> None:
    running = RunningCosts()
    assert running.add([line(EntryKind.OPEN, DAY - 10.0)], 1)
    assert running.sums(DAY + 5.0).total_usd == Decimal("0.06")
    assert running.add([line(EntryKind.CLOSE, DAY - 10.0, minimum=0)], 2)
    assert running.sums(DAY + 5.0).total_usd == 0
