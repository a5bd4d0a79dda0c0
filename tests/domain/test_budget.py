"""Budgets: scopes, limits and calendar months of a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.access import Owner
from autoscaler.domain.budget import (
    Budget,
    BudgetBasis,
    BudgetRoom,
    BudgetScope,
    ScopeKind,
    moment_text,
    month_name,
    month_of,
    parse_scope,
    require_budget,
)
from autoscaler.domain.errors import SpecError

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Kiritimati")
FLEET = BudgetScope(ScopeKind.FLEET)


@given(at_seconds=st.floats(0.0, 4e9), zone=st.sampled_from(ZONES))
def test_months_follow_each_other_without_a_gap(at_seconds: float, zone: str) -> None:
    month = month_of(at_seconds, zone)
    assert month.start_seconds <= at_seconds < month.end_seconds
    assert month_of(month.end_seconds, zone).start_seconds == month.end_seconds
    assert timedelta(days=27.9) < timedelta(seconds=month.seconds) < timedelta(days=31.1)


def test_a_month_begins_at_midnight_of_its_zone_also_where_clocks_change_in_it() -> None:
    october = month_of(datetime(2026, 10, 20, tzinfo=UTC).timestamp(), "Europe/Berlin")
    assert datetime.fromtimestamp(october.start_seconds, UTC) == datetime(
        2026, 9, 30, 22, tzinfo=UTC
    )
    assert datetime.fromtimestamp(october.end_seconds, UTC) == datetime(
        2026, 10, 31, 23, tzinfo=UTC
    )
    assert october.seconds == 31 * 86400 + 3600, "clocks go back in this month"
    assert month_name(october, "Europe/Berlin") == "2026-10"
    assert moment_text(october.end_seconds, "Europe/Berlin") == "2026-11-01 00:00 Europe/Berlin"


def test_a_scope_is_read_and_printed() -> None:
    for text in ("person:ada@example.org", "person:owner", "team:nlp", "study:sweep", "fleet"):
        assert str(parse_scope(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "nlp", "team", "team:", "team:none", "fleet:a", "person:A B", "study:-", "job:a"],
)
def test_a_bad_scope_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(SpecError, match=r"write|take another name"):
        parse_scope(text)


def test_a_scope_covers_its_jobs() -> None:
    ada = Owner("ada", "nlp")
    assert parse_scope("person:ada").covers(ada, None)
    assert not parse_scope("person:bob").covers(ada, None)
    assert parse_scope("team:nlp").covers(ada, "sweep")
    assert not parse_scope("team:nlp").covers(Owner("ada"), None)
    assert parse_scope("study:sweep").covers(ada, "sweep")
    assert not parse_scope("study:sweep").covers(ada, None)
    assert FLEET.covers(ada, None)


@pytest.mark.parametrize(
    ("budget", "field"),
    [
        (Budget(FLEET), None),
        (Budget(FLEET, month_usd=Decimal(0)), "month_usd"),
        (Budget(FLEET, total_usd=Decimal("NaN")), "total_usd"),
        (Budget(FLEET, hourly_usd=Decimal("1e12")), "hourly_usd"),
        (Budget(FLEET, Decimal(5), zone="Europe/Berlyn"), "zone"),
        (Budget(FLEET, Decimal(5), zone="../../etc/passwd"), "zone"),
        (Budget(FLEET, Decimal(5), zone=""), "zone"),
    ],
)
def test_a_bad_budget_is_refused_by_its_field(budget: Budget, field: str | None) -> None:
    with pytest.raises(SpecError) as caught:
        require_budget(budget)
    assert caught.value.field == field


def test_limits_and_rooms_have_words() -> None:
    budget = Budget(FLEET, Decimal(500), None, Decimal(20), "Europe/Berlin")
    require_budget(budget)
    assert budget.text == "$500 a month (Europe/Berlin), $20/h"
    room = BudgetRoom(BudgetBasis.MONTH, 27.0, 36000.0)
    assert room.words("team nlp") == "team nlp is at its pace of $2.70/h"
    assert "limit of $5.00/h" in BudgetRoom(BudgetBasis.HOUR, 0.0, 3600.0, 5.0).words("ada")
    assert "has $3.00 left" in BudgetRoom(BudgetBasis.TOTAL, 3.0, float("inf")).words("ada")
