"""Pages of lists other than that of jobs: each item once, and the whole list without a limit."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx
import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.notice import NoticeKey, NoticeKind, UserNotice
from autoscaler.wire.access_messages import NewPerson
from autoscaler.wire.budget_messages import BudgetRequest
from autoscaler.wire.client import Client
from tests.service.agents import SPEC
from tests.service.conftest import TOKEN, Api

HEADERS = {"Authorization": f"Bearer {TOKEN}"}

Prepare = Callable[[Api], None]
Items = Callable[[Any], list[Any]]


def with_budgets(api: Api) -> None:
    for scope in ("team:nlp", "fleet", "team:vision"):
        api.client.set_budget(scope, BudgetRequest(Decimal(100)))


def with_decisions(api: Api) -> None:
    job = api.client.submit(SPEC).id
    for instances in (1, 2, 1):
        api.world.set_target(job, instances)
        api.world.tick(4)


def with_offers(api: Api) -> None:
    api.world.tick(1)


def with_notices(api: Api) -> None:
    for episode in range(1, 4):
        key = NoticeKey(NoticeKind.LEAK, "i-1", episode)
        api.world.store.notices.add(UserNotice(key, 1.0, "It runs."), ["ops"])


def offers_by_id(body: Any) -> list[Any]:
    """Return the offers as pages have them; the whole list has the order of the file."""
    return sorted(body["offers"], key=lambda row: str(row["offer"]["id"]))


LISTS: list[tuple[str, Prepare, Items, str]] = [
    ("/v1/budgets", with_budgets, list, "scope"),
    ("/v1/jobs/job/decisions", with_decisions, list, "at_seconds"),
    ("/v1/offers", with_offers, offers_by_id, "offer"),
    ("/v1/notifications", with_notices, lambda body: list(body["deliveries"]), "id"),
]


@pytest.mark.parametrize(("path", "prepare", "items", "key"), LISTS)
def test_pages_have_every_item_once(
    api: Api, path: str, prepare: Prepare, items: Items, key: str
) -> None:
    prepare(api)

    def keys(reply: httpx.Response) -> list[Any]:
        assert reply.status_code == 200, reply.text
        return [item[key] for item in items(reply.json())]

    whole = httpx.get(f"{api.url}{path}", headers=HEADERS)
    assert "next" not in whole.links
    found: list[Any] = []
    address = f"{path}?limit=1"
    while address:
        reply = httpx.get(f"{api.url}{address}", headers=HEADERS)
        assert len(keys(reply)) == 1
        found += keys(reply)
        address = reply.links.get("next", {}).get("url", "")
    assert found == keys(whole)
    assert len(found) >= 2


@pytest.mark.parametrize(("path", "prepare", "items", "key"), LISTS)
def test_the_cursor_of_another_list_is_refused(
    api: Api, path: str, prepare: Prepare, items: Items, key: str
) -> None:
    prepare(api)
    cursor = httpx.get(f"{api.url}{path}?limit=1", headers=HEADERS).links["next"]["url"]
    cursor = httpx.URL(cursor).params["cursor"]
    for other in {path for path, *_ in LISTS} - {path, "/v1/jobs/job/decisions"}:
        reply = httpx.get(f"{api.url}{other}", params={"cursor": cursor}, headers=HEADERS)
        assert (reply.status_code, reply.json()["field"]) == (422, "cursor")


def test_new_items_move_no_page(api: Api) -> None:
    with_notices(api)
    first = httpx.get(f"{api.url}/v1/notifications?limit=2", headers=HEADERS)
    key = NoticeKey(NoticeKind.LEAK, "i-1", 4)
    api.world.store.notices.add(UserNotice(key, 2.0, "It runs."), ["ops"])
    second = httpx.get(f"{api.url}{first.links['next']['url']}", headers=HEADERS)
    ids = [entry["id"] for reply in (first, second) for entry in reply.json()["deliveries"]]
    assert len(ids) == len(set(ids)) == 3


def with_people(api: Api) -> None:
    for name in ("ada", "bob", "eve"):
        api.client.add_person(NewPerson(name))


CALLS: dict[str, tuple[Prepare, Callable[[Client], tuple[object, ...]]]] = {
    "jobs": (with_decisions, lambda client: client.jobs()),
    "decisions": (with_decisions, lambda client: client.decisions("job", None)),
    "people": (with_people, lambda client: client.people()),
    "audit": (with_people, lambda client: client.audit(limit=None)),
    "notifications": (with_notices, lambda client: client.notifications(None).deliveries),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_client_reads_all_pages(api: Api, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, read = CALLS[name]
    prepare(api)
    whole = read(api.client)
    monkeypatch.setattr("autoscaler.wire.client._PAGE_ITEMS", 1)
    assert read(api.client) == whole and len(whole) >= 1


def test_the_client_reads_the_latest_of_several_pages(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_notices(api)
    with_people(api)
    monkeypatch.setattr("autoscaler.wire.client._PAGE_ITEMS", 2)
    every = api.client.notifications()
    latest = api.client.notifications(3)
    assert latest.deliveries == every.deliveries[:3] and latest.targets == every.targets
    numbers = [row.number for row in api.client.audit(limit=3)]
    assert numbers == sorted(numbers, reverse=True) and len(numbers) == 3
    with pytest.raises(SpecError, match="limit"):
        api.client.audit(limit=0)
