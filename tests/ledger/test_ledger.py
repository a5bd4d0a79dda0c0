from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.ledger.bill import Charge, amount
from autoscaler.ledger.ledger import Ledger

DAY = 86_400.0
PRICES = st.decimals("0.0001", "99.9999", places=4)
TIMES = st.floats(0.0, 5 * DAY)
SENT_USD = st.decimals(0, 100, places=11)


@st.composite
def bills(draw: st.DrawFn) -> list[LedgerEntry]:
    """Draw the entries of up to eight instances over five days.

    Some are repriced and some still run. Transfers are booked before, during and after an
    instance's life, and for another job.
    """
    lines = []
    for number in range(draw(st.integers(0, 8))):
        times = sorted(draw(st.lists(TIMES, min_size=1, max_size=4, unique=True)))
        job, offer = draw(st.sampled_from("ab")), draw(st.sampled_from("xyz"))
        minimum = draw(st.sampled_from((0, 60)))
        for index, at_seconds in enumerate(times):
            common = (f"{job}-{number}-1", job, offer)
            price = draw(PRICES)
            if index > 0:
                lines.append(LedgerEntry(EntryKind.CLOSE, *common, price, at_seconds, minimum))
            if index + 1 < len(times) or draw(st.booleans()) or index == 0:
                lines.append(LedgerEntry(EntryKind.OPEN, *common, price, at_seconds, minimum))
        for at_seconds in draw(st.lists(TIMES, max_size=3)):
            payer, usd = draw(st.sampled_from("ab")), draw(SENT_USD)
            common = (f"{job}-{number}-1", payer, offer)
            line = LedgerEntry(EntryKind.TRANSFER, *common, Decimal(0), at_seconds, usd=usd)
            lines.insert(draw(st.integers(0, len(lines))), line)
    return lines


@pytest.mark.parametrize(
    "key",
    [
        lambda charge: charge.instance,
        lambda charge: charge.job,
        lambda charge: charge.offer,
        lambda charge: charge.day,
        lambda charge: (charge.job, charge.day),
    ],
    ids=["instance", "job", "offer", "day", "job and day"],
)
@given(lines=bills(), now_seconds=TIMES)
def test_every_grouping_adds_up_to_the_total(
    key: Callable[[Charge], object], lines: list[LedgerEntry], now_seconds: float
) -> None:
    ledger = Ledger(lines)
    total = sum(ledger.totals(key, now_seconds).values(), Decimal(0))
    assert total == ledger.total(now_seconds)


@given(lines=bills(), now_seconds=TIMES)
def test_what_was_sent_is_told_apart_to_the_last_digit(
    lines: list[LedgerEntry], now_seconds: float
) -> None:
    sent = [line for line in lines if line.kind is EntryKind.TRANSFER]
    without = Ledger(line for line in lines if line.kind is not EntryKind.TRANSFER)
    ledger, sent_usd = Ledger(lines), sum((line.usd for line in sent), Decimal(0))
    assert ledger.total(now_seconds) == without.total(now_seconds) + sent_usd
    assert sum((day.transfer_usd for day in ledger.daily(now_seconds)), Decimal(0)) == sent_usd
    assert sum(day.usd for day in ledger.daily(now_seconds)) == ledger.total(now_seconds)
    for job, usd in ledger.transfers(lambda charge: charge.job).items():
        assert usd == sum(line.usd for line in sent if line.job == job)
        own = without.spent(job, now_seconds) + usd
        assert ledger.spent(job, now_seconds) == own
    assert ledger.rate_usd_per_hour(now_seconds) == without.rate_usd_per_hour(now_seconds)
    assert ledger.paid_already() == without.paid_already()


@given(lines=bills(), since_seconds=TIMES, now_seconds=TIMES)
def test_costs_since_a_time_and_before_it_add_up_to_the_total(
    lines: list[LedgerEntry], since_seconds: float, now_seconds: float
) -> None:
    ledger = Ledger(lines)
    every: dict[str, Decimal] = {}
    for bill in ledger.bills:
        for job, usd in bill.usd_by_job(float("-inf"), now_seconds).items():
            every[job] = every.get(job, Decimal(0)) + usd
    assert {job: usd for job, usd in every.items() if usd} == {
        job: usd for job, usd in ledger.by_job(now_seconds).items() if usd
    }
    for bill in ledger.bills:
        since = sum(bill.usd_by_job(since_seconds, now_seconds).values())
        assert 0 <= since <= sum(bill.usd_by_job(float("-inf"), now_seconds).values())


@given(lines=bills(), day=st.integers(0, 5))
def test_costs_since_midnight_are_those_of_the_days_after(
    lines: list[LedgerEntry], day: int
) -> None:
    ledger, now_seconds = Ledger(lines), 6 * DAY
    midnight = day * DAY
    since = sum(
        (sum(bill.usd_by_job(midnight, now_seconds).values()) for bill in ledger.bills), Decimal(0)
    )
    days = ledger.by_day(now_seconds)
    begin = datetime.fromtimestamp(midnight, UTC).date()
    assert since == sum((usd for at, usd in days.items() if at >= begin), Decimal(0))


@given(lines=bills(), now_seconds=TIMES, later_seconds=TIMES)
def test_spending_never_falls_and_is_never_negative(
    lines: list[LedgerEntry], now_seconds: float, later_seconds: float
) -> None:
    now_seconds, later_seconds = sorted((now_seconds, later_seconds))
    ledger = Ledger(lines)
    assert 0 <= ledger.total(now_seconds) <= ledger.total(later_seconds)


@given(lines=bills(), now_seconds=TIMES, later_seconds=TIMES)
def test_time_does_not_change_the_figure_of_a_day_that_is_over(
    lines: list[LedgerEntry], now_seconds: float, later_seconds: float
) -> None:
    now_seconds, later_seconds = sorted((now_seconds, later_seconds))
    seen = [line for line in lines if line.at_seconds <= now_seconds]
    today = now_seconds // DAY
    for day, usd in Ledger(seen).by_day(now_seconds).items():
        if day.toordinal() - 719_163 < today:
            assert Ledger(seen).by_day(later_seconds)[day] == usd


@given(price=PRICES, start=TIMES, seconds=st.floats(0.0, 3 * DAY), minimum=st.integers(0, 100))
def test_days_add_up_to_the_amount(
    price: Decimal, start: float, seconds: float, minimum: int
) -> None:
    end = start + seconds
    lines = [
        LedgerEntry(EntryKind.OPEN, "a-0-1", "a", "x", price, start, minimum),
        LedgerEntry(EntryKind.CLOSE, "a-0-1", "a", "x", price, end, minimum),
    ]
    assert Ledger(lines).total(0.0) == amount(price, end - start, minimum)


def test_jobs_offers_and_rates() -> None:
    price = Decimal("3.6")
    lines = [
        LedgerEntry(EntryKind.OPEN, "a-0-1", "a", "x", price, 0.0),
        LedgerEntry(EntryKind.OPEN, "b-0-1", "b", "x", price * 2, 5.0),
        LedgerEntry(EntryKind.CLOSE, "a-0-1", "a", "x", price, 10.0),
        LedgerEntry(EntryKind.OPEN, "b-1-1", "b", "y", price, 20.0),
    ]
    ledger = Ledger(lines)
    assert ledger.by_job(25.0) == {"a": Decimal("0.01"), "b": Decimal("0.045")}
    assert ledger.by_offer(25.0) == {"x": Decimal("0.05"), "y": Decimal("0.005")}
    assert ledger.by_instance(25.0)["b-0-1"] == Decimal("0.04")
    assert ledger.spent("b", 25.0) == Decimal("0.045")
    assert ledger.spent("unknown", 25.0) == 0
    assert ledger.rate_usd_per_hour(7.0) == price * 3
    assert ledger.rate_usd_per_hour(25.0) == price * 3


def test_an_empty_ledger() -> None:
    assert Ledger([]).total(0.0) == 0
    assert Ledger([]).by_day(0.0) == {}


def test_an_offer_of_which_nothing_is_charged_is_paid_already() -> None:
    lines = [
        LedgerEntry(EntryKind.OPEN, f"{offer}-{usd}", "a", offer, Decimal(usd), 0.0)
        for offer, usd in (("own", 0), ("mixed", 0), ("mixed", 2), ("bought", 1))
    ]
    ledger = Ledger(lines)
    assert ledger.paid_already() == {"own"}
    assert ledger.by_offer(3600.0)["own"] == 0
