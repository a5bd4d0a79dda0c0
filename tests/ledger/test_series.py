from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.series import grid, last_in_bins, spending_series
from tests.ledger.test_ledger import TIMES, bills


@given(lines=bills(), times=st.lists(TIMES, min_size=1, max_size=6, unique=True).map(sorted))
def test_each_point_is_what_the_ledger_told_then(
    lines: list[LedgerEntry], times: list[float]
) -> None:
    series = spending_series(Ledger(lines), {"a"}, times)
    for index, at_seconds in enumerate(times):
        then = Ledger([line for line in lines if line.at_seconds <= at_seconds])
        assert series.spent_usd[index] == pytest.approx(float(then.spent("a", at_seconds)))
        rate = float(then.rate_usd_per_hour(at_seconds, "a"))
        assert series.usd_per_hour[index] == pytest.approx(rate)
        held = sum(bill.usd_per_hour(at_seconds, "a") > 0 for bill in then.bills)
        assert sum(counts[index] for counts in series.instances.values()) == held
        assert sum(counts[index] for counts in series.held.values()) == held


def test_an_instance_that_changes_jobs_is_paid_by_each_in_turn() -> None:
    lines = [
        LedgerEntry(EntryKind.OPEN, "i", "a", "x", Decimal("3.6"), 0.0, 60),
        LedgerEntry(EntryKind.CLOSE, "i", "a", "x", Decimal("3.6"), 20.0, 60),
        LedgerEntry(EntryKind.OPEN, "i", "b", "x", Decimal("3.6"), 20.0, 60),
        LedgerEntry(EntryKind.CLOSE, "i", "b", "x", Decimal("3.6"), 30.0, 60),
    ]
    times = (0.0, 10.0, 25.0, 40.0)
    first = spending_series(Ledger(lines), {"a"}, times)
    assert first.spent_usd == pytest.approx((0.06, 0.06, 0.02, 0.02))
    assert first.instances == {"x": (1, 1, 0, 0)}
    second = spending_series(Ledger(lines), {"b"}, times)
    assert second.spent_usd == pytest.approx((0.0, 0.0, 0.04, 0.04))


def test_a_grid_has_both_ends_and_even_steps() -> None:
    assert grid(10.0, 20.0, 3) == (10.0, 15.0, 20.0)
    assert grid(10.0, 10.0, 300) == (10.0,)
    assert grid(0.0, 1e9 + 0.1, 7)[-1] == 1e9 + 0.1


def test_bins_have_their_last_moment_or_none() -> None:
    assert last_in_bins((1.0, 2.0, 3.0), (0.5, 1.0, 1.2, 1.9, 3.5)) == (1, 3, None)
    assert last_in_bins((1.0,), ()) == (None,)
    assert last_in_bins((), (1.0,)) == ()
