"""Common parts of all pages: headers, files, refusals, permits."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from autoscaler.domain.access import Role
from autoscaler.service.access.request_gate import OPEN_PAGES
from autoscaler.service.pages import static_files
from autoscaler.service.pages.forms import require_forms
from autoscaler.service.routes.permits import actions_of, require_permits, routes_of
from autoscaler.wire.access_messages import InvitationRequest
from tests.service.conftest import TOKEN, Api, application
from tests.service.pages.browser import PageVisitor

STATIC = Path(static_files.__file__).parent / "static"
PAGES = [route for route in routes_of(application().routes) if not route.include_in_schema]
MOST_BYTES = 300_000


def test_every_page_names_an_action_and_no_page_is_in_the_schema_of_the_api() -> None:
    assert len(PAGES) > 5
    for route in PAGES:
        is_open = OPEN_PAGES.fullmatch(route.path) is not None
        assert len(list(actions_of(route.dependant))) == (0 if is_open else 1), route.path
        assert not route.path.startswith("/v1/")


def test_a_route_without_an_action_stops_the_start() -> None:
    app, inner = FastAPI(), APIRouter(prefix="/v1")
    inner.add_api_route("/fleet", lambda: None)
    app.include_router(inner)
    with pytest.raises(RuntimeError, match="/v1/fleet: name one action, not 0"):
        require_permits(app)


def test_a_form_without_the_check_of_its_token_stops_the_start() -> None:
    app = FastAPI()
    app.add_api_route("/jobs", lambda: None, methods=["POST"])
    with pytest.raises(RuntimeError, match="/jobs: take its fields from PageForm"):
        require_forms(app)


@pytest.mark.parametrize("path", ["/", "/sign-in", "/nowhere"])
def test_a_page_loads_nothing_from_elsewhere_and_runs_no_inline_script(
    api: Api, path: str
) -> None:
    reply = PageVisitor(api).get(path)
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy
    assert reply.headers["x-frame-options"] == "DENY"
    assert reply.headers["cache-control"] == "no-store"
    assert not re.search(r"<script(?![^>]* src=)|\son[a-z]+=|\sstyle=|<style", reply.text)
    addresses = re.findall(r'(?:src|href|action)="([^"]*)"', reply.text)
    assert addresses
    assert all(re.match(r"/(?!/)|#", address) for address in addresses)


def test_a_page_with_all_that_it_loads_is_below_its_limit(api: Api) -> None:
    visitor = PageVisitor(api)
    page = visitor.get("/")
    files = set(re.findall(r'"(/static/[^"]*)"', page.text))
    assert len(files) >= 4
    sizes = [len(visitor.get(file).content) for file in files]
    assert len(page.content) + sum(sizes) < MOST_BYTES


def test_a_file_is_kept_for_good_and_needs_no_session(api: Api) -> None:
    page = httpx.get(f"{api.url}/sign-in").text
    for address in set(re.findall(r'"(/static/[^"]*)"', page)):
        reply = httpx.get(api.url + address)
        assert "immutable" in reply.headers["cache-control"]
        digits = hashlib.sha256(reply.content).hexdigest()[:12]
        assert f".{digits}." in address
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert httpx.get(f"{api.url}/static/castor.css").status_code == 404
    assert httpx.get(f"{api.url}/static/..%2frendering.py").status_code == 404


def test_the_files_of_others_are_those_of_the_list_with_their_licences() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| .* \| `([0-9a-f]{64})` \|$", _list(), re.MULTILINE))
    vendored = {
        path.name for path in STATIC.iterdir() if re.search(r"-\d+\.\d+\.\d+\.", path.name)
    }
    assert set(rows) == vendored
    for name, digest in rows.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest, name
    packages = {name.partition(".LICENSE")[0] for name in rows if "LICENSE" in name}
    assert all(name.startswith(tuple(packages)) for name in rows)


def _list() -> str:
    return (STATIC / "VENDORED.md").read_text()


def test_a_refusal_is_a_page_for_a_browser_and_json_for_others(api: Api) -> None:
    visitor = PageVisitor(api)
    reply = visitor.get("/nowhere")
    assert reply.status_code == 404 and "There is no such page" in reply.text
    headers = {"Authorization": f"Bearer {TOKEN}"}
    reply = httpx.get(f"{api.url}/nowhere", headers=headers)
    assert reply.status_code == 404 and reply.json()["error"] == "CastorError"
    assert visitor.get("/v1/jobs/none").json()["error"] == "UnknownJob"


def test_a_refusal_has_the_navigation_and_a_way_out(api: Api) -> None:
    viewer = api.client.invite("eve", InvitationRequest(Role.VIEWER)).token
    for visitor, path, status in (
        (PageVisitor(api), "/nowhere", 404),
        (PageVisitor(api), "/jobs/none", 404),
        (PageVisitor(api), "/jobs/none/stop", 404),
        (PageVisitor(api, viewer), "/people", 403),
    ):
        reply = visitor.get(path)
        assert reply.status_code == status
        assert 'aria-label="Pages"' in reply.text and 'href="/jobs"' in reply.text, path
        assert "Sign in" not in reply.text and "Go to the fleet" in reply.text, path
    reply = PageVisitor(api, None).get("/nowhere")
    assert "Sign in" in reply.text and 'aria-label="Pages"' not in reply.text


def test_a_refused_form_leads_back_to_its_page_and_to_no_other_host(api: Api) -> None:
    visitor = PageVisitor(api)
    own = {"Referer": f"{api.url}/jobs/none/stop?a=1"}
    reply = visitor.http.post("/jobs/none/stop", data={"form_token": "wrong"}, headers=own)
    assert reply.status_code >= 400 and 'href="/jobs/none/stop?a=1"' in reply.text
    assert 'aria-label="Pages"' in reply.text
    for address in ("https://evil.example/jobs", f"{api.url}//evil.example", "javascript:1"):
        reply = visitor.http.post("/theme", data={}, headers={"Referer": address})
        assert reply.status_code >= 400 and "Back to the page before" not in reply.text, address


def test_every_file_of_the_pages_is_used() -> None:
    templates = "".join(path.read_text() for path in (STATIC.parent / "templates").iterdir())
    unused = [
        path.name
        for path in STATIC.iterdir()
        if f"static('{path.name}')" not in templates
        and not path.name.endswith((".LICENSE.txt", ".md"))
    ]
    assert unused == []
