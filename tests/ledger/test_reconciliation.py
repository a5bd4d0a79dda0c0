from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.spending import AccountCost, BillPart, DailyCost, EntryKind, LedgerEntry
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.reconciliation import (
    Comparison,
    Reconciliation,
    ReconciliationResult,
    reconcile,
)

TODAY = date(2026, 12, 10)
NOON_SECONDS = datetime(2026, 12, 10, 12, tzinfo=UTC).timestamp()
OLD = date(2026, 12, 1)
SPOT = "gpu/g5.xlarge/us-east-1a/spot"

DAYS = st.integers(0, 13).map(lambda number: TODAY - timedelta(days=number))
AMOUNTS = st.decimals("0", "99.9999", places=10)
SHARES = st.decimals("0", "1", places=2)


@st.composite
def ledger_costs(draw: st.DrawFn) -> DailyCost:
    usd = draw(AMOUNTS)
    return DailyCost(draw(DAYS), draw(st.sampled_from("xyz")), usd, usd * draw(SHARES))


@st.composite
def account_costs(draw: st.DrawFn) -> AccountCost:
    part, name = draw(st.sampled_from(BillPart)), draw(st.sampled_from("abc"))
    return AccountCost(draw(DAYS), part, name, draw(AMOUNTS))


def spent(day: date, usd: str, extras_usd: str = "0") -> DailyCost:
    return DailyCost(day, SPOT, Decimal(usd), Decimal(extras_usd))


def billed(
    day: date, usd: str, part: BillPart = BillPart.INSTANCES, name: str = ""
) -> AccountCost:
    return AccountCost(day, part, name or part, Decimal(usd))


def total(found: Reconciliation) -> tuple[Decimal, Decimal]:
    """Return the totals of the ledger and of the account."""
    beside_usd = sum(found.beside_usd.values(), Decimal(0))
    return (
        found.instances.ledger_usd + found.extras.ledger_usd,
        found.instances.account_usd + found.extras.account_usd + beside_usd,
    )


@given(own=st.lists(ledger_costs()), bill=st.lists(account_costs()))
def test_no_cent_is_lost_or_counted_twice(own: list[DailyCost], bill: list[AccountCost]) -> None:
    found = reconcile(own, bill, NOON_SECONDS)
    for day in found.days:
        theirs = day.instances.account_usd + day.extras.account_usd + day.beside_usd
        assert theirs == sum(line.usd for line in bill if line.day == day.day)
        ours = day.instances.ledger_usd + day.extras.ledger_usd
        assert ours == sum(cost.usd for cost in own if cost.day == day.day)
    assert {day.day for day in found.days} == {line.day for line in (*own, *bill)}
    settled = {day.day for day in found.days if day.is_settled}
    assert total(found) == (
        sum(cost.usd for cost in own if cost.day in settled),
        sum(line.usd for line in bill if line.day in settled),
    )


@given(own=st.lists(ledger_costs()), bill=st.lists(account_costs()))
def test_differences_are_the_account_s_less_the_ledger_s(
    own: list[DailyCost], bill: list[AccountCost]
) -> None:
    found = reconcile(own, bill, NOON_SECONDS)
    settled = [day for day in found.days if day.is_settled]
    for whole, parts in (
        (found.instances, [day.instances for day in settled]),
        (found.extras, [day.extras for day in settled]),
    ):
        assert whole.difference_usd == sum(part.difference_usd for part in parts)
        assert whole.account_usd - whole.ledger_usd == whole.difference_usd


def test_days_are_settled_two_days_after_their_end() -> None:
    own = [spent(TODAY - timedelta(days=number), "10") for number in range(5)]
    found = reconcile(own, [], NOON_SECONDS)
    assert [day.is_settled for day in found.days] == [True, True, False, False, False]
    assert found.instances.ledger_usd == 20


@pytest.mark.parametrize(
    ("ledger_usd", "account_usd", "verdict"),
    [
        ("10", "10.3", ReconciliationResult.AGREE),
        ("10", "9.7", ReconciliationResult.AGREE),
        ("10", "10.31", ReconciliationResult.ACCOUNT_HAS_MORE),
        ("10", "9.69", ReconciliationResult.LEDGER_HAS_MORE),
        ("0", "0.01", ReconciliationResult.AGREE),
        ("0", "0.02", ReconciliationResult.ACCOUNT_HAS_MORE),
    ],
)
def test_a_few_per_cent_are_no_difference(
    ledger_usd: str, account_usd: str, verdict: ReconciliationResult
) -> None:
    found = reconcile([spent(OLD, ledger_usd)], [billed(OLD, account_usd)], NOON_SECONDS)
    assert found.verdict is verdict


def test_instances_are_compared_apart_from_what_is_billed_beside_them() -> None:
    """A volume too many is no instance that Castor does not know."""
    own = [spent(OLD, "10", extras_usd="1")]
    bill = [billed(OLD, "9"), billed(OLD, "3", BillPart.EXTRAS)]
    bill += [billed(OLD, usd, BillPart.BESIDE, name) for usd, name in (("1", "NAT"), ("2", "S3"))]
    found = reconcile(own, bill, NOON_SECONDS)
    assert found.verdict is ReconciliationResult.AGREE
    assert found.instances == Comparison(Decimal(9), Decimal(9), Decimal(0), Decimal(0))
    assert found.extras == Comparison(Decimal(1), Decimal(3), Decimal(2), Decimal(2))
    assert list(found.beside_usd.items()) == [("S3", Decimal(2)), ("NAT", Decimal(1))]


def test_an_account_that_knows_nothing_has_no_tag_rather_than_no_cost() -> None:
    assert (
        reconcile([spent(OLD, "5")], [], NOON_SECONDS).verdict
        is ReconciliationResult.ACCOUNT_HAS_NOTHING
    )
    others = [billed(OLD, "1", BillPart.BESIDE)]
    assert (
        reconcile([spent(OLD, "5")], others, NOON_SECONDS).verdict
        is ReconciliationResult.LEDGER_HAS_MORE
    )


def test_of_days_that_are_not_settled_nothing_is_said() -> None:
    assert (
        reconcile([spent(TODAY, "5")], [], NOON_SECONDS).verdict
        is ReconciliationResult.NOTHING_SETTLED
    )
    assert reconcile([], [], NOON_SECONDS).verdict is ReconciliationResult.NOTHING_SETTLED
    assert reconcile([], [], NOON_SECONDS).instances.share is None


def test_a_day_is_estimated_while_the_cloud_says_so() -> None:
    bill = [AccountCost(OLD, BillPart.INSTANCES, "", Decimal(1), is_estimated=True)]
    (day,) = reconcile([], bill, NOON_SECONDS).days
    assert day.is_settled and day.is_estimated


def test_the_ledger_tells_its_days_with_extras_apart() -> None:
    start = datetime(2026, 12, 1, 23, tzinfo=UTC).timestamp()
    price, extras = Decimal("1.10"), Decimal("0.10")
    lines = [
        LedgerEntry(kind, "a-0-1", "a", SPOT, price, at_seconds, extras_usd_per_hour=extras)
        for kind, at_seconds in ((EntryKind.OPEN, start), (EntryKind.CLOSE, start + 3 * 3600))
    ]
    assert Ledger(lines).daily(start + 9e5) == (
        DailyCost(date(2026, 12, 1), SPOT, Decimal("1.10"), Decimal("0.10")),
        DailyCost(date(2026, 12, 2), SPOT, Decimal("2.20"), Decimal("0.20")),
    )


def test_what_was_sent_is_in_no_comparison_of_instances() -> None:
    """The account has it among what is beside them, and not by whom it was sent."""
    sent = Decimal("0.50")
    own = [DailyCost(OLD, SPOT, Decimal("3.60"), Decimal("0.10"), transfer_usd=sent)]
    bill = [billed(OLD, "3.00"), billed(OLD, "0.10", BillPart.EXTRAS)]
    found = reconcile(own, bill, NOON_SECONDS)
    assert found.instances.ledger_usd == Decimal("3.00")
    assert found.extras.ledger_usd == Decimal("0.10")
    assert found.transfer_usd == sent
    assert found.verdict is ReconciliationResult.AGREE
