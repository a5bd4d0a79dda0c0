"""Forms of shared budgets: set, changed and removed, with the audit rows of the API's routes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from autoscaler.domain.access import Role
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.budget_messages import BudgetRequest
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor, version, visible

NEW = "/costs/budgets"
NLP = "/costs/budgets/team:nlp"
MONTH = BudgetRequest(Decimal(500))


def limits(api: Api) -> dict[str, tuple[Decimal | None, Decimal | None, Decimal | None, str]]:
    return {
        view.scope: (view.month_usd, view.total_usd, view.hourly_usd, view.zone)
        for view in api.client.budgets()
    }


def changes(api: Api) -> list[tuple[str, str, str, str]]:
    rows = [row for row in api.client.audit() if "budget" in row.action]
    return [(row.action, row.subject, row.before, row.after) for row in rows]


def test_a_budget_is_added_changed_and_removed(api: Api) -> None:
    visitor = PageVisitor(api)
    text = visitor.text("/costs")
    assert "Add a budget" in text and "has a budget that its jobs share" in text
    assert "A new shared budget" in visitor.text(NEW)
    reply = visitor.send(NEW, kind="team", name="nlp", month_usd="$500", zone="Europe/Berlin")
    assert reply.headers["location"] == "/costs?done=shared-budget-set"
    assert limits(api) == {"team:nlp": (Decimal(500), None, None, "Europe/Berlin")}
    page = visitor.get("/costs?done=shared-budget-set").text
    assert "The budget is set" in visible(page)
    assert f'href="{NLP.replace(":", "%3A")}"' in page or f'href="{NLP}"' in page
    form = visitor.get(NLP).text
    assert "In force: $500 a month (Europe/Berlin)" in visible(form) and 'value="500"' in form
    sent = {"version": version(form), "month_usd": "", "total_usd": "9.50", "hourly_usd": "20"}
    assert visitor.send(NLP, **sent).status_code == 303
    assert limits(api) == {"team:nlp": (None, Decimal("9.50"), Decimal(20), "UTC")}
    question = visitor.get(f"{NLP}/removal").text
    assert "Remove the budget of team:nlp?" in visible(question)
    assert len(limits(api)) == 1, "a question changes nothing"
    reply = visitor.send(f"{NLP}/removal", version=version(question))
    assert reply.headers["location"] == "/costs?done=shared-budget-removed"
    assert limits(api) == {}
    assert changes(api) == [
        ("remove budget", "team:nlp", "$9.50 in all, $20/h", ""),
        ("set budget", "team:nlp", "$500 a month (Europe/Berlin)", "$9.50 in all, $20/h"),
        ("set budget", "team:nlp", "", "$500 a month (Europe/Berlin)"),
    ]


@pytest.mark.parametrize(
    ("fields", "scope"),
    [
        ({"kind": "fleet"}, "fleet"),
        ({"kind": "person", "name": "owner"}, "person:owner"),
        ({"kind": "study", "name": "sweep"}, "study:sweep"),
    ],
)
def test_a_budget_has_each_kind_of_scope(api: Api, fields: dict[str, str], scope: str) -> None:
    visitor = PageVisitor(api)
    assert visitor.send(NEW, hourly_usd="3", **fields).status_code == 303
    assert limits(api) == {scope: (None, None, Decimal(3), "UTC")}
    assert f"Budget of {scope}" in visitor.text(f"{NEW}/{scope}")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"kind": "galaxy"}, "kind"),
        ({"kind": "team"}, "name"),
        ({"kind": "team", "name": "N L P"}, "name"),
        ({"kind": "team", "name": "n" * 5000}, "name"),
        ({"kind": "fleet", "name": "all"}, "name"),
        ({"kind": "person", "name": "nobody"}, "name"),
        ({"kind": "study", "name": "../x"}, "name"),
        ({"month_usd": ""}, "month_usd"),
        ({"month_usd": "lots"}, "month_usd"),
        ({"total_usd": "-5"}, "total_usd"),
        ({"hourly_usd": "NaN"}, "hourly_usd"),
        ({"hourly_usd": "9" * 40}, "hourly_usd"),
        ({"zone": "Mars/Base"}, "zone"),
        ({"zone": "../../etc/passwd"}, "zone"),
    ],
)
def test_a_value_that_can_not_be_used_stays_in_the_form_and_names_its_field(
    api: Api, fields: dict[str, str], name: str
) -> None:
    visitor = PageVisitor(api)
    sent = {"kind": "team", "name": "nlp", "month_usd": "70", "zone": "UTC", **fields}
    if fields.get("kind") == "team" and "name" not in fields:
        sent["name"] = ""
    reply = visitor.send(NEW, **sent)
    assert reply.status_code == 422, reply.text
    assert f'id="{name}-error"' in reply.text and f"{name}: " in visible(reply.text)
    for key in ("month_usd", "total_usd", "hourly_usd", "zone"):
        if sent.get(key):
            assert f'name="{key}" type="text" value="{sent[key]}"' in reply.text, key
    assert limits(api) == {} and changes(api) == []


def test_a_second_budget_of_a_scope_is_refused_with_the_first_one(api: Api) -> None:
    api.client.set_budget("team:nlp", MONTH)
    reply = PageVisitor(api).send(NEW, kind="team", name="nlp", total_usd="9")
    assert reply.status_code == 409
    assert "team:nlp has a budget already ($500 a month (UTC))" in visible(reply.text)
    assert 'value="9"' in reply.text
    assert limits(api)["team:nlp"][0] == Decimal(500)


def test_a_budget_that_changed_meanwhile_is_shown_and_not_overwritten(api: Api) -> None:
    api.client.set_budget("team:nlp", MONTH)
    visitor = PageVisitor(api)
    read = version(visitor.get(NLP).text)
    api.client.set_budget("team:nlp", BudgetRequest(Decimal(800)))
    for path, fields in ((NLP, {"month_usd": "600"}), (f"{NLP}/removal", {})):
        reply = visitor.send(path, version=read, **fields)
        assert reply.status_code == 412 and "has changed since" in visible(reply.text)
        assert "In force: $800 a month (UTC)" in visible(reply.text)
        assert limits(api)["team:nlp"][0] == Decimal(800)
    reply = visitor.send(NLP, version=read, month_usd="600")
    assert 'value="600"' in reply.text, "what was entered stays"
    again = visitor.send(NLP, version=version(reply.text), month_usd="600")
    assert again.status_code == 303 and limits(api)["team:nlp"][0] == Decimal(600)


def test_a_change_of_a_removed_budget_becomes_a_new_one(api: Api) -> None:
    api.client.set_budget("team:nlp", MONTH)
    visitor = PageVisitor(api)
    read = version(visitor.get(NLP).text)
    api.client.remove_budget("team:nlp")
    reply = visitor.send(NLP, version=read, month_usd="600")
    assert reply.status_code == 404 and "team:nlp has no budget" in visible(reply.text)
    assert 'name="name" type="text" value="nlp"' in reply.text and 'value="600"' in reply.text
    assert visitor.send(f"{NLP}/removal", version=read).status_code == 404
    for path in (NLP, f"{NLP}/removal"):
        assert visitor.get(path).status_code == 404
    for path in ("/costs/budgets/galaxy", "/costs/budgets/team:N L P/removal"):
        assert visitor.get(path).status_code == 422, path
    assert limits(api) == {}


def test_only_admins_see_and_send_the_forms(api: Api) -> None:
    api.client.set_budget("team:nlp", MONTH)
    for role in (Role.VIEWER, Role.OPERATOR):
        token = api.client.invite("ada", InvitationRequest(role)).token
        visitor = PageVisitor(api, token)
        page = visitor.get("/costs").text
        assert "team:nlp" in page and "/costs/budgets" not in page
        for path in (NEW, NLP, f"{NLP}/removal"):
            assert visitor.get(path).status_code == 403, path
            sent = {"kind": "team", "name": "x", "month_usd": "1", "version": ""}
            assert visitor.send(path, **sent).status_code == 403, path
    assert list(limits(api)) == ["team:nlp"] and len(changes(api)) == 1


def test_a_form_of_another_site_changes_no_budget(api: Api) -> None:
    api.client.set_budget("team:nlp", MONTH)
    visitor = PageVisitor(api)
    read = version(visitor.get(NLP).text)
    sent = {"kind": "fleet", "month_usd": "1", "version": read}
    for path in (NEW, NLP, f"{NLP}/removal"):
        reply = visitor.http.post(path, data={"form_token": "f" * 64, **sent})
        assert reply.status_code == 401, path
    assert list(limits(api)) == ["team:nlp"] and len(changes(api)) == 1
