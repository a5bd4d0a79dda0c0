"""Pages of costs: sums beside the requests, and bills under other rules."""

from __future__ import annotations

from threading import Event

import pytest

from autoscaler.service.jobs.views import Views
from autoscaler.wire.messages import CostView
from tests.service.agents import SPEC, joined, node_report, training_report
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor, visible


def test_costs_are_shown_by_person_offer_and_job(api: Api) -> None:
    joined(api)
    api.world.tick(1, seconds=3600.0, agents=False)
    text = PageVisitor(api).text("/costs")
    spent = f"{api.client.costs().total_usd:.2f}"
    for words in (f"Spent in all ${spent}", f"owner ${spent}", f"small ${spent}", f"job ${spent}"):
        assert words in text, words
    assert "By team" not in text, "nobody has a team"


def test_the_page_answers_before_all_is_added_up_and_loads_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go, costs = Event(), Views.costs

    def slow(views: Views, now_seconds: float) -> CostView:
        may_go.wait(10)
        return costs(views, now_seconds)

    monkeypatch.setattr(Views, "costs", slow)
    visitor = PageVisitor(api)
    reply = visitor.get("/costs")
    assert reply.status_code == 200 and reply.headers["refresh"] == "3"
    assert "are being added up" in visible(reply.text) and "Spent in all" not in reply.text
    may_go.set()
    while "refresh" in reply.headers:
        reply = visitor.get("/costs")
    assert "Spent in all" in reply.text


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
    while "refresh" in reply.headers:
        reply = visitor.get("/jobs/job/counterfactual")
    text = visible(reply.text)
    for words in (
        "This run , billed",
        "Castor's own rule (marginal)",
        "best fixed pool, no later",
    ):
        assert words in text, words
    assert 'class="predicted">about $' in reply.text
    assert "all rules" in visitor.text("/costs") and SPEC.name in text
