"""Budgets over the API: set, read, changed and removed by admins, with their spending."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.controller.budgets.accounts import BudgetStanding
from autoscaler.domain.access import Role
from autoscaler.domain.budget import Budget, BudgetBasis, BudgetPlan, BudgetScope, ScopeKind
from autoscaler.domain.errors import Forbidden, NotFound, SpecError
from autoscaler.service.jobs.budgets import expected_usd
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.budget_messages import BudgetRequest
from tests.service.agents import SPEC
from tests.service.conftest import Api

NLP = BudgetScope(ScopeKind.TEAM, "nlp")
MONTH = Budget(NLP, Decimal(300)).month(1e9)
DAY = 86400.0


def test_a_budget_is_set_read_changed_and_removed(api: Api) -> None:
    client = api.client
    request = BudgetRequest(Decimal("500"), hourly_usd=Decimal("20"), zone="Europe/Berlin")
    view = client.set_budget("team:nlp", request)
    assert (view.scope, view.month_usd, view.hourly_usd) == ("team:nlp", 500, 20)
    assert (view.spent_month_usd, view.spent_total_usd, view.dollar_weight) == (0, None, 1.0)
    assert view.pace_usd_per_hour is not None and view.pace_usd_per_hour > 0
    client.set_budget("team:nlp", BudgetRequest(total_usd=Decimal("9")))
    (changed,) = client.budgets()
    assert (changed.month_usd, changed.total_usd, changed.zone) == (None, 9, "UTC")
    client.remove_budget("team:nlp")
    assert client.budgets() == ()
    rows = [row for row in client.audit() if "budget" in row.action]
    assert [(row.action, row.subject, row.before, row.after) for row in rows] == [
        ("remove budget", "team:nlp", "$9 in all", ""),
        ("set budget", "team:nlp", "$500 a month (Europe/Berlin), $20/h", "$9 in all"),
        ("set budget", "team:nlp", "", "$500 a month (Europe/Berlin), $20/h"),
    ]


def test_spending_is_that_of_the_scope(api: Api) -> None:
    ada = api.stranger(api.client.invite("ada", InvitationRequest(team="nlp")).token)
    job = ada.submit(replace(SPEC, name="mine")).id
    other = api.client.submit(replace(SPEC, name="other")).id
    for scope in ("team:nlp", "fleet", "person:ada"):
        api.client.set_budget(scope, BudgetRequest(Decimal(100)))
    for name in (job, other):
        api.world.set_target(name, 1)
    api.world.tick(5)
    api.world.clock.advance(3600.0)
    fleet, person, team = ada.budgets()
    assert [view.scope for view in (fleet, person, team)] == ["fleet", "person:ada", "team:nlp"]
    assert team.usd_per_hour == person.usd_per_hour == fleet.usd_per_hour / 2 > 0
    assert team.spent_month_usd is not None and fleet.spent_month_usd is not None
    assert fleet.spent_month_usd == pytest.approx(2 * team.spent_month_usd)
    assert team.spent_month_usd > 0


def test_only_admins_set_budgets_and_everyone_reads_them(api: Api) -> None:
    for role in (Role.VIEWER, Role.OPERATOR):
        token = api.client.invite("ada", InvitationRequest(role)).token
        stranger = api.stranger(token)
        assert stranger.budgets() == ()
        with pytest.raises(Forbidden, match="set budget: needs the role admin"):
            stranger.set_budget("fleet", BudgetRequest(Decimal(5)))
        with pytest.raises(Forbidden, match="remove budget: needs the role admin"):
            stranger.remove_budget("fleet")


@pytest.mark.parametrize(
    ("scope", "request_", "message"),
    [
        ("team", BudgetRequest(Decimal(5)), "scope: .*write person:NAME, team:NAME"),
        ("fleet", BudgetRequest(), "give at least one of month_usd"),
        ("fleet", BudgetRequest(Decimal(-5)), "month_usd: .*not an amount above"),
        ("fleet", BudgetRequest(Decimal(5), zone="Mars/Base"), "zone: .*IANA name"),
    ],
)
def test_a_bad_budget_is_refused_and_nothing_changes(
    api: Api, scope: str, request_: BudgetRequest, message: str
) -> None:
    api.client.set_budget("fleet", BudgetRequest(Decimal(7)))
    with pytest.raises(SpecError, match=message):
        api.client.set_budget(scope, request_)
    assert [view.month_usd for view in api.client.budgets()] == [7]


def test_people_and_budgets_that_are_not_there_are_named(api: Api) -> None:
    with pytest.raises(NotFound, match="nobody is called eve: castor people"):
        api.client.set_budget("person:eve", BudgetRequest(Decimal(5)))
    with pytest.raises(NotFound, match="team:nlp has no budget: castor budget list"):
        api.client.remove_budget("team:nlp")


def standing(month_usd: str) -> BudgetStanding:
    return BudgetStanding(
        budget=Budget(NLP, Decimal(300)),
        month=MONTH,
        month_usd=Decimal(month_usd),
        total_usd=Decimal(0),
        usd_per_hour=Decimal(1),
        reserve_usd=Decimal(0),
        month_reserve_usd=Decimal(0),
    )


def test_the_band_has_the_present_jobs_and_the_month_so_far_at_its_ends() -> None:
    plan = BudgetPlan("team:nlp", 1.4, BudgetBasis.MONTH, planned_usd=50.0)
    tenth = MONTH.start_seconds + MONTH.seconds / 10
    assert expected_usd(standing("20"), plan, tenth) == (70.0, pytest.approx(200.0))
    assert expected_usd(standing("60"), plan, tenth) == (110.0, 300.0), "never above the limit"
    early = MONTH.start_seconds + DAY / 2
    assert expected_usd(standing("20"), plan, early) == (70.0, 70.0)
    low, high = expected_usd(standing("0"), None, early)
    assert low == high == 0.0
