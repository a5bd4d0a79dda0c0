from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from autoscaler.domain.errors import LedgerError
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.ledger.bill import QUANTUM_USD, Bill, amount

PRICE = Decimal("3.6")
MIDNIGHT = datetime(2026, 12, 1, tzinfo=UTC).timestamp()


def opening(at_seconds: float, usd_per_hour: Decimal = PRICE, minimum: int = 0) -> LedgerEntry:
    return LedgerEntry(
        EntryKind.OPEN, "digits-0-1", "digits", "local-small", usd_per_hour, at_seconds, minimum
    )


def closing(at_seconds: float, minimum: int = 0) -> LedgerEntry:
    return LedgerEntry(
        EntryKind.CLOSE, "digits-0-1", "digits", "local-small", PRICE, at_seconds, minimum
    )


def transfer(at_seconds: float, usd: str) -> LedgerEntry:
    return LedgerEntry(
        EntryKind.TRANSFER,
        "digits-0-1",
        "digits",
        "local-small",
        Decimal(0),
        at_seconds,
        usd=Decimal(usd),
        sent_bytes=10**9,
    )


def cost(*lines: LedgerEntry, now_seconds: float = 1e6) -> Decimal:
    return sum((charge.usd for charge in Bill.of(list(lines)).charges(now_seconds)), Decimal(0))


@pytest.mark.parametrize(
    ("seconds", "minimum", "usd"),
    [
        (0.0, 0, "0"),
        (0.1, 0, "0.001"),
        (10.0, 0, "0.010"),
        (10.000001, 0, "0.011"),
        (10.0000001, 0, "0.010"),
        (10.0, 60, "0.060"),
        (61.5, 60, "0.062"),
        (-5.0, 0, "0"),
    ],
)
def test_started_seconds_are_billed(seconds: float, minimum: int, usd: str) -> None:
    assert amount(PRICE, seconds, minimum) == Decimal(usd)


def test_an_amount_is_rounded_only_far_below_what_is_shown() -> None:
    assert amount(Decimal("0.05"), 1) == Decimal("0.000013888889")
    assert amount(Decimal("0.05"), 7) % QUANTUM_USD == 0


def test_an_instance_that_runs_is_billed_to_now() -> None:
    assert cost(opening(100.0), now_seconds=110.5) == Decimal("0.011")
    assert cost(opening(100.0), now_seconds=90.0) == 0


def test_a_minimum_is_owed_from_the_first_moment() -> None:
    assert cost(opening(100.0, minimum=60), now_seconds=100.0) == Decimal("0.060")
    assert cost(opening(100.0, minimum=60), closing(130.0, 60)) == Decimal("0.060")


def test_a_change_of_price_starts_no_second_anew() -> None:
    lines = (opening(100.0), closing(110.5), opening(110.5, PRICE * 2), closing(120.5))
    charges = list(Bill.of(list(lines)).charges(1e6))
    assert [charge.seconds for charge in charges] == [11, 10]
    assert cost(*lines) == Decimal("0.011") + Decimal("0.020")


def test_a_minimum_is_owed_once_and_at_the_last_price() -> None:
    lines = (opening(100.0, minimum=60), closing(110.0), opening(110.0, PRICE * 2, 60))
    assert cost(*lines, closing(120.0, 60)) == Decimal("0.010") + Decimal("0.100")


def test_a_second_belongs_to_the_day_in_which_it_starts() -> None:
    bill = Bill.of([opening(MIDNIGHT - 1.5), closing(MIDNIGHT + 86_400 + 1.2)])
    assert [(charge.day, charge.seconds) for charge in bill.charges(0.0)] == [
        (date(2026, 11, 30), 2),
        (date(2026, 12, 1), 86_400),
        (date(2026, 12, 2), 1),
    ]


def test_a_minimum_may_belong_to_tomorrow_and_yesterday_stays_as_it_was() -> None:
    bill = Bill.of([opening(MIDNIGHT - 10, minimum=60)])
    figures = [
        [(charge.day.day, charge.seconds) for charge in bill.charges(now_seconds)]
        for now_seconds in (MIDNIGHT - 5, MIDNIGHT + 30, MIDNIGHT + 100)
    ]
    assert figures == [[(30, 10), (1, 50)], [(30, 10), (1, 50)], [(30, 10), (1, 100)]]


def test_lines_are_taken_in_the_order_of_their_times() -> None:
    assert cost(closing(110.0), opening(100.0)) == Decimal("0.010")


def test_the_first_end_stands() -> None:
    assert cost(opening(100.0), closing(110.0), closing(110.0)) == Decimal("0.010")
    assert cost(opening(100.0), closing(120.0), closing(110.0)) == Decimal("0.010")


def test_what_is_opened_and_closed_at_once_costs_its_minimum() -> None:
    assert cost(opening(100.0), closing(100.0)) == 0
    assert cost(opening(100.0, minimum=60), closing(100.0, 60)) == Decimal("0.060")


def test_an_instance_that_is_closed_without_a_minimum_never_ran_and_costs_nothing() -> None:
    assert cost(opening(100.0, minimum=60), closing(100.0)) == 0


def test_lines_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(LedgerError, match="digits-0-1 is opened twice"):
        Bill.of([opening(100.0), opening(200.0)])
    with pytest.raises(LedgerError, match="digits-0-1 is closed but never opened"):
        Bill.of([closing(100.0)])


def test_the_price_is_that_of_the_moment() -> None:
    bill = Bill.of([opening(100.0), closing(110.0), opening(110.0, PRICE * 2), closing(120.0)])
    prices = [bill.usd_per_hour(second) for second in (99.0, 100.0, 109.9, 110.0, 120.0)]
    assert prices == [0, PRICE, PRICE, PRICE * 2, 0]


@pytest.mark.parametrize("at_seconds", [0.0, 100.0, 105.0, 110.0, 500.0])
def test_what_was_sent_and_fetched_is_a_charge_of_its_own_whenever_it_comes(
    at_seconds: float,
) -> None:
    bill = Bill.of([opening(100.0), transfer(at_seconds, "0.12"), closing(110.0)])
    assert bill == Bill.of([transfer(at_seconds, "0.12"), opening(100.0), closing(110.0)])
    held, sent = bill.charges(0.0)
    assert (held.usd, held.transfer_usd, held.seconds) == (Decimal("0.01"), 0, 10)
    assert (sent.usd, sent.transfer_usd, sent.seconds) == (Decimal("0.12"), Decimal("0.12"), 0)
    assert bill.usd_per_hour(105.0) == PRICE


def test_what_was_sent_belongs_to_the_day_on_which_it_was_heard_of() -> None:
    lines = [transfer(MIDNIGHT - 0.5, "0.1"), transfer(MIDNIGHT, "0.2")]
    days = [(charge.day, charge.usd) for charge in Bill.of(lines).charges(0.0)]
    assert days == [(date(2026, 11, 30), Decimal("0.1")), (date(2026, 12, 1), Decimal("0.2"))]
    assert Bill.of(lines).usd_per_hour(MIDNIGHT) == 0


def test_an_amount_of_any_digits_is_rounded_once() -> None:
    third = Decimal(1) / 3
    lines = [replace(transfer(float(n), "0"), usd=third) for n in range(3)]
    charges = list(Bill.of(lines).charges(0.0))
    assert {charge.usd for charge in charges} == {Decimal("0.333333333333")}
