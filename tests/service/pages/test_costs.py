"""Pages of costs: sums beside the requests, and bills under other rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from threading import Event
from typing import Any

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.spending import AccountCost, BillPart, DailyCost
from autoscaler.ledger.reconciliation import ReconciliationResult, reconcile
from autoscaler.service.jobs.views import Views
from autoscaler.service.pages import costs as pages
from autoscaler.wire.cost_messages import BillComparison, BilledDay
from autoscaler.wire.messages import CostView
from tests.service.agents import SPEC, joined, node_report, training_report
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor, visible


def test_costs_are_shown_by_person_offer_and_job(api: Api) -> None:
    joined(api)
    api.world.tick(1, seconds=3600.0, agents=False)
    visitor = PageVisitor(api)
    text = visitor.text("/costs")
    assert 'href="/jobs/job.1"' in visitor.get("/costs").text, "and to no later job of its name"
    spent = f"{api.client.costs().total_usd:.2f}"
    for words in (f"Spent in all ${spent}", f"owner ${spent}", f"small ${spent}", f"job ${spent}"):
        assert words in text, words
    assert "By team" not in text, "nobody has a team"


def test_the_page_answers_before_all_is_added_up_and_loads_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, costs = Event(), Views.costs

    def slow(views: Views, now_seconds: float) -> CostView:
        may_go.wait(60)
        return costs(views, now_seconds)

    monkeypatch.setattr(Views, "costs", slow)
    monkeypatch.setattr(pages, "_LONGEST_WAIT_SECONDS", 0.2)
    visitor = PageVisitor(api)
    reply = visitor.get("/costs")
    assert reply.status_code == 200 and reply.headers["refresh"] == "3"
    assert "are being added up" in visible(reply.text) and "Spent in all" not in reply.text
    may_go.set()
    while "refresh" in reply.headers:
        reply = visitor.get("/costs")
    assert "Spent in all" in reply.text and "As of" not in reply.text
    may_go.clear()
    api.world.clock.advance(60.0)
    assert "As of 1 min ago" in visitor.text("/costs"), "the next sums are under way"
    may_go.set()


def test_other_rules_bills_are_worked_out_when_asked_for(api: Api) -> None:
    held, node = joined(api)
    visitor = PageVisitor(api)
    assert "no progress" in visitor.text("/jobs/job/counterfactual")
    assert visitor.get("/jobs/none/counterfactual").status_code == 404
    api.world.tick(2, seconds=1000.0, agents=False)
    told = training_report(100, progress_examples=1e5)
    node.heartbeat(node_report(held, job="job", reports=(told,)))
    text = visitor.text("/costs")
    assert "What other rules would have paid" in text
    reply = visitor.get("/jobs/job/counterfactual")
    while "refresh" in reply.headers or "no progress" in reply.text:  # the answer of before
        reply = visitor.get("/jobs/job/counterfactual")
    text = visible(reply.text)
    for words in (
        "This run , billed",
        "Castor's own rule",
        "Best fixed pool that ends no later",
    ):
        assert words in text, words
    assert 'class="predicted">about $' in reply.text
    assert "all rules" in visitor.text("/costs") and SPEC.name in text


DAY = BilledDay(date(2026, 11, 1), Decimal("10"), Decimal("10.20"), Decimal("1.08"))


def test_a_kept_comparison_with_a_bill_is_shown_and_is_in_the_audit_log(api: Api) -> None:
    visitor = PageVisitor(api)
    assert "The ledger and the bill" not in visitor.text("/costs"), "only with data"
    open_day = BilledDay(date(2026, 11, 2), Decimal(5), Decimal(1), is_settled=False)
    comparison = BillComparison("AWS", "prod", (DAY, open_day))
    kept = api.client.keep_bill("aws", comparison)
    assert (kept.person, kept.comparison, kept.agrees) == ("owner", comparison, True)
    assert api.client.bills() == (kept,)
    text = visitor.text("/costs")
    for words in (
        *(
            "The ledger and the bill of AWS",
            "owner compared them",
            "agree on instances within 3 % or $0.01",
        ),
        *(
            "2026-11-01 $10.00 $10.20 $0.20 $1.08 settled",
            "Settled days $10.00 $10.20 $0.20 $1.08",
        ),
        "2026-11-02 $5.00 $1.00 -$4.00 $0.00 open, in no sum",
    ):
        assert words in text, words
    leak = replace(DAY, billed_usd=Decimal("34.14"))
    api.client.keep_bill("aws", BillComparison("AWS", "prod", (leak,)))
    assert "They differ by $24.14 (241 % of the ledger)" in visitor.text("/costs")
    assert [view.agrees for view in api.client.bills()] == [False]
    api.client.keep_bill("gcp", BillComparison("Google", "prod", (open_day,)))
    assert [view.provider for view in api.client.bills()] == ["aws", "gcp"]
    assert "No day is settled yet" in visitor.text("/costs")
    assert [view.agrees for view in api.client.bills()] == [False, None]
    latest = api.client.audit()[0]
    assert (latest.action, latest.subject) == ("keep bill", "gcp")


def test_the_page_and_the_api_agree_with_the_command_about_small_sums(api: Api) -> None:
    day = replace(DAY, ledger_usd=Decimal("0.05"))
    for billed, agrees in (("0.06", True), ("0.061", False)):
        compared = replace(day, billed_usd=Decimal(billed))
        view = api.client.keep_bill("aws", BillComparison("AWS", "prod", (compared,)))
        ledger = DailyCost(day.day, "x", day.ledger_usd, Decimal(0))
        account = AccountCost(day.day, BillPart.INSTANCES, "compute", compared.billed_usd)
        verdict = reconcile([ledger], [account], 2e9).verdict
        assert view.agrees == agrees == (verdict is ReconciliationResult.AGREE)
        text = PageVisitor(api).text("/costs")
        assert ("agree on instances" in text, "They differ by" in text) == (agrees, not agrees)


@pytest.mark.parametrize(
    ("provider", "change", "words"),
    [
        ("AWS!", {}, "provider"),
        ("aws", {"cloud": ""}, "cloud"),
        ("aws", {"deployment": "a\nb"}, "deployment"),
        ("aws", {"days": ()}, "days"),
        ("aws", {"days": (DAY, DAY)}, "each once"),
        ("aws", {"days": (replace(DAY, billed_usd=Decimal("1e30")),)}, "days.billed_usd"),
    ],
)
def test_a_comparison_that_can_not_be_used_names_the_field(
    api: Api, provider: str, change: dict[str, Any], words: str
) -> None:
    comparison = replace(BillComparison("AWS", "prod", (DAY,)), **change)
    with pytest.raises(SpecError, match=words):
        api.client.keep_bill(provider, comparison)
    assert api.client.bills() == ()
