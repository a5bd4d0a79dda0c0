"""Tables in the order that the address of their page states."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from html import unescape

import pytest
from fastapi import Request
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.errors import SpecError
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms
from autoscaler.service.pages.costs import TABLES
from autoscaler.service.pages.offers import OFFERS
from autoscaler.service.pages.studies import STUDIES, TRIALS
from autoscaler.service.pages.table_order import Column, OrderedTable
from autoscaler.wire.budget_messages import BudgetRequest
from tests.service.agents import joined
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor, visible
from tests.service.studies.test_courses import searched

PAIRS: OrderedTable[tuple[str, float | None]] = OrderedTable(
    "sort",
    (Column("name", lambda pair: pair[0]), Column("cost", lambda pair: pair[1], begins_high=True)),
    usual="name",
)


def request(query: str) -> Request:
    return Request({"type": "http", "path": "/x", "query_string": query.encode(), "headers": []})


def heads(page: str) -> dict[str, tuple[str, str]]:
    """Return the address and the state of each head that orders a table, by its id."""
    found = re.findall(
        r'<th scope="col"(?: class="number")?(?: aria-sort="(\w+)")?><a id="([^"]+)" '
        r'href="([^"#]+)#([^"]+)"',
        page,
    )
    assert all(anchor == target for _, anchor, _, target in found)
    return {anchor: (unescape(address), state) for state, anchor, address, _ in found}


@given(st.lists(st.tuples(st.text(), st.none() | st.floats())))
def test_rows_without_a_value_come_last_in_both_orders(
    rows: list[tuple[str, float | None]],
) -> None:
    for query, sign in (("sort=cost", 1), ("sort=-cost", -1)):
        ordered = PAIRS.order(request(query)).sorted(rows)
        known = [cost for _, cost in ordered if cost is not None and not math.isnan(cost)]
        assert [cost for _, cost in ordered][: len(known)] == known
        assert known == sorted(known, reverse=sign < 0)
        assert len(ordered) == len(rows)


def test_rows_of_equal_values_keep_their_order() -> None:
    rows = [("b", 1.0), ("a", 1.0), ("c", 2.0)]
    assert [name for name, _ in PAIRS.order(request("sort=cost")).sorted(rows)] == list("bac")
    assert [name for name, _ in PAIRS.order(request("sort=-cost")).sorted(rows)] == list("cba")


def test_a_head_leads_to_its_order_then_to_the_opposite_and_keeps_filters() -> None:
    order = PAIRS.order(request("q=a%26b&cursor=x&done=changed"))
    assert order.is_usual and order.standing("name") == "ascending"
    assert order.link("cost") == "/x?q=a%26b&sort=-cost"
    assert order.link("name") == "/x?q=a%26b&sort=-name"
    order = PAIRS.order(request("sort=-cost&q=c"))
    assert (order.standing("cost"), order.standing("name")) == ("descending", "")
    assert order.link("cost") == "/x?q=c&sort=cost"
    assert order.link("name") == "/x?q=c", "the usual order needs no parameter"
    assert order.page("next") == "/x?q=c&sort=-cost&cursor=next"


@pytest.mark.parametrize("text", ["size", "-", "--cost", "cost-", "<b>", "a" * 5000])
def test_an_unknown_order_names_the_parameter_and_the_columns(text: str) -> None:
    with pytest.raises(SpecError, match="choose one of name, cost") as error:
        PAIRS.order(request(f"sort={text}"))
    assert error.value.field == "sort" and len(str(error.value)) < 400


@pytest.mark.parametrize("table", [OFFERS, STUDIES, TRIALS, *TABLES], ids=lambda t: t.parameter)
def test_every_table_has_its_usual_order_and_columns_of_different_names(
    table: OrderedTable[object],
) -> None:
    keys = [column.key for column in table.columns]
    assert len(set(keys)) == len(keys) and table.order(request("")).is_usual


def test_offers_are_ordered_by_every_column(api: Api) -> None:
    visitor = PageVisitor(api)
    page = visitor.get("/offers").text
    links = heads(page)
    assert len(links) == len(OFFERS.columns) and links["sort-by-devices"][1] == "ascending"
    for anchor, (address, _) in links.items():
        reply = visitor.get(address)
        assert reply.status_code == 200 and heads(reply.text)[anchor][1], anchor
    prices = {
        order: re.findall(r"\$([\d.]+)/h</span></td>", visitor.get(f"/offers?sort={order}").text)
        for order in ("price", "-price")
    }
    assert prices["price"] == sorted(prices["price"], key=float) != prices["-price"]
    assert prices["-price"] == prices["price"][::-1]
    filtered = visitor.get("/offers?q=sm&sort=-price").text
    assert 'name="sort" value="-price"' in filtered, "the filter keeps the order"
    assert heads(filtered)["sort-by-held"][0] == "/offers?q=sm&sort=-held"


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/offers", "sort"),
        ("/studies", "sort"),
        ("/studies/sweep", "sort"),
        ("/jobs", "sort"),
        *(("/costs", table.parameter) for table in TABLES),
    ],
)
def test_a_page_refuses_an_order_that_it_does_not_have(
    api: Api, path: str, parameter: str
) -> None:
    searched(api)
    reply = PageVisitor(api).get(f"{path}?{parameter}=colour")
    assert reply.status_code == 422, path
    assert f"{parameter}: " in visible(reply.text) and "colour" in visible(reply.text)


def test_each_table_of_costs_has_an_order_of_its_own(api: Api) -> None:
    joined(api)
    api.world.tick(1, seconds=3600.0, agents=False)
    for scope in ("team:nlp", "fleet"):
        api.client.set_budget(scope, BudgetRequest(month_usd=Decimal(100)))
    visitor = PageVisitor(api)
    links = heads(visitor.get("/costs?jobs=name").text)
    assert links["jobs-by-name"] == ("/costs?jobs=-name", "ascending")
    assert links["persons-by-spent"] == ("/costs?jobs=name&persons=spent", "descending")
    assert links["budgets-by-of"] == ("/costs?jobs=name&budgets=-of", "ascending")
    for anchor, (address, _) in links.items():
        assert heads(visitor.get(address).text)[anchor][1], anchor
    scopes = re.findall(r'data-name="Of" class="wrap">([^<]+)', visitor.get("/costs").text)
    other = re.findall(
        r'data-name="Of" class="wrap">([^<]+)', visitor.get("/costs?budgets=-used").text
    )
    assert scopes == ["fleet", "team:nlp"] and set(other) == set(scopes)


def test_studies_are_ordered_over_all_pages(api: Api) -> None:
    for number in range(30):
        objective = Objective(budget_usd=Decimal(100 - number))
        api.world.store.studies.state(f"study-{number:02}", StudyTerms(objective=objective))
    visitor = PageVisitor(api)
    page = visitor.get("/studies?sort=budget").text
    names = re.findall(r'data-row href="/studies/([^"]+)"', page)
    assert names == [f"study-{number:02}" for number in reversed(range(5, 30))]
    following = unescape(page.split('rel="next" href="')[1].split('"')[0])
    rest = visitor.get(following).text
    assert re.findall(r'data-row href="/studies/([^"]+)"', rest) == [
        f"study-{number:02}" for number in reversed(range(5))
    ]
    assert 'rel="prev" href="/studies?sort=budget"' in rest and 'rel="next"' not in rest
    assert visitor.get(following.replace("sort=budget", "sort=-budget")).status_code == 422
    assert heads(page)["sort-by-best"][0] == "/studies?sort=best"


def test_trials_are_ordered_by_their_values(api: Api) -> None:
    searched(api)
    visitor = PageVisitor(api)
    usual = visitor.get("/studies/sweep").text
    assert heads(usual)["sort-by-trial"] == ("/studies/sweep?sort=trial", "descending")
    rows = r'<a data-row href="/jobs/([^"]+)"'
    jobs = re.findall(rows, usual)
    assert len(jobs) == 2
    assert re.findall(rows, visitor.get("/studies/sweep?sort=trial").text) == jobs[::-1]
    for anchor, (address, _) in heads(usual).items():
        assert heads(visitor.get(address).text)[anchor][1], anchor


def test_jobs_are_ordered_by_the_heads_of_name_and_time(api: Api) -> None:
    for name in ("b", "a", "c"):
        api.world.submit(name)
    visitor = PageVisitor(api)
    links = heads(visitor.get("/jobs?phase=alive").text)
    assert links["by-time"] == ("/jobs?phase=alive&sort=oldest", "descending")
    assert links["by-name"] == ("/jobs?phase=alive&sort=name", "")
    page = visitor.get(links["by-name"][0]).text
    assert re.findall(r'data-row href="/jobs/([^"]+)"', page) == ["a", "b", "c"]
    assert heads(page)["by-name"][1] == "ascending"
