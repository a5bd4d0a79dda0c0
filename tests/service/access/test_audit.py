"""Audit log of changes by people: exactly one row for each, and none for reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx
import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.audit import MOST_LETTERS, AuditEntry
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds
from autoscaler.wire.access_messages import InvitationRequest, TokenRequest
from autoscaler.wire.messages import Change
from tests.conformance.store_programs import memory
from tests.service.agents import SPEC, packed
from tests.service.conftest import TOKEN, Api
from tests.service.jobs.test_resume import run
from tests.service.test_every_route import BODIES, ROUTES, Route

# Requests that change nothing but use POST, and messages between a driver and its trials.
SILENT: Final = {
    "POST /v1/plans",
    "POST /v1/jobs/{name}/what-if",
    "POST /v1/jobs/{name}/logs",
    "DELETE /v1/studies/{study}/files/{sha256}",
    # A login that is granted adds a row: tests/service/access/test_logins.py.
    "POST /v1/logins",
    "POST /v1/logins/token",
    "POST /login",
    # A session that begins adds a row: tests/service/pages/test_sessions.py.
    "POST /v1/browser-links",
}


@dataclass(frozen=True)
class Step:
    """A request that succeeds, and the row that it adds: action, subject, before, after."""

    route: str
    address: str
    row: tuple[str, str, str, str]
    body: object = None


TERMS = {"holder": "me", "terms": {"objective": {"budget_usd": "9"}}, "trials": []}
ENDED = [{"job": "trial", "ending": "pruned"}]
STEPS: Final = (
    Step(
        "POST /v1/jobs",
        "/v1/jobs",
        ("submit", "digits", "", "1 to 4 instances, no budget"),
        {"spec": {"name": "digits", "command": ["true"], "instances": {"maximum": 4}}},
    ),
    Step(
        "PATCH /v1/jobs/{name}",
        "/v1/jobs/digits",
        ("change job", "digits", '{"priority":1.0}', '{"priority":4.0}'),
        {"priority": 4.0},
    ),
    Step(
        "POST /v1/jobs/{name}/stop",
        "/v1/jobs/digits/stop",
        ("stop job", "digits", "pending", "stopping"),
    ),
    Step(
        "POST /v1/jobs/{name}/resume",
        "/v1/jobs/job/resume",
        ("resume job", "job.2", "goes on from job", "1 to 2 instances, no budget"),
        {},
    ),
    Step(
        "POST /v1/studies/{study}/lease",
        "/v1/studies/sweep/lease",
        ("drive study", "sweep", "", "me"),
        {"holder": "me", "seconds": 60.0},
    ),
    Step(
        "POST /v1/studies/{study}/terms",
        "/v1/studies/sweep/terms",
        ("state terms", "sweep", "", "{"),
        TERMS,
    ),
    Step(
        "POST /v1/studies/{study}/budget",
        "/v1/studies/sweep/budget",
        ("change study", "sweep", "$9", "$12"),
        {"budget_usd": "12"},
    ),
    Step(
        "POST /v1/studies/{study}/answers",
        "/v1/studies/sweep/answers",
        ("end trials", "sweep", "", "trial pruned"),
        {"holder": "me", "answers": [], "ended": ENDED},
    ),
    Step(
        "POST /v1/studies/{study}/checkpoints/removal",
        "/v1/studies/sweep/checkpoints/removal",
        ("remove checkpoints", "sweep", "trial-0-20260101T000000000000", "0 removed"),
        ["trial-0-20260101T000000000000"],
    ),
    Step(
        "POST /v1/studies/{study}/stop",
        "/v1/studies/sweep/stop?at_once=true",
        ("stop study", "sweep", "", "at once"),
    ),
    Step(
        "DELETE /v1/studies/{study}/lease",
        "/v1/studies/sweep/lease?holder=me",
        ("leave study", "sweep", "me", ""),
    ),
    Step("POST /v1/freeze", "/v1/freeze", ("freeze", "fleet", "", "")),
    Step("POST /v1/unfreeze", "/v1/unfreeze", ("unfreeze", "fleet", "", "")),
    Step("POST /v1/drain", "/v1/drain", ("drain", "fleet", "", "")),
    Step(
        "POST /v1/people",
        "/v1/people",
        ("add person", "bob@example.org", "", "submitter, team nlp"),
        {"name": "bob@example.org", "team": "nlp"},
    ),
    Step(
        "POST /v1/people/{name}",
        "/v1/people/ada",
        ("invite", "ada", "", "viewer, team nlp"),
        {"role": "viewer", "team": "nlp"},
    ),
    Step(
        "PATCH /v1/people/{name}",
        "/v1/people/ada",
        ("change person", "ada", "viewer, team nlp", "operator, team none"),
        {"role": "operator", "leaves_team": True},
    ),
    Step(
        "POST /v1/people/{name}/tokens",
        "/v1/people/ada/tokens",
        ("create token", "ada/ci", "", "service token, role viewer"),
        {"name": "ci", "is_service": True, "role": "viewer"},
    ),
    Step(
        "POST /v1/people/{name}/tokens/{token}/rotation",
        "/v1/people/ada/tokens/ci/rotation?grace_seconds=60",
        ("rotate token", "ada/ci", "", "role viewer; the earlier one for 60 s more"),
    ),
    Step(
        "DELETE /v1/people/{name}/tokens/{token}",
        "/v1/people/ada/tokens/ci",
        ("revoke token", "ada/ci", "", ""),
    ),
    Step("DELETE /v1/people/{name}", "/v1/people/ada", ("remove person", "ada", "", "")),
    Step(
        "DELETE /v1/programs/{name}",
        "/v1/programs/known",
        ("forget program", "known", "", ""),
    ),
    Step(
        "PUT /v1/budgets/{scope}",
        "/v1/budgets/team:nlp",
        ("set budget", "team:nlp", "", "$500 a month"),
        {"month_usd": "500"},
    ),
    Step(
        "DELETE /v1/budgets/{scope}",
        "/v1/budgets/team:nlp",
        ("remove budget", "team:nlp", "$500 a month (UTC)", ""),
    ),
    Step(
        "PUT /v1/costs/bills/{provider}",
        "/v1/costs/bills/aws",
        ("keep bill", "aws", "", "AWS, 2026-11-01 to 2026-11-01"),
        BODIES["PUT /v1/costs/bills/{provider}"],
    ),
)

# Refused without targets; tests/cli/test_notifications.py has some.
AUDITED_WITH_TARGETS: Final = {"POST /v1/notifications/test"}


def rows_by_people(api: Api) -> tuple[AuditEntry, ...]:
    """Return the rows of people, the latest first."""
    rows = api.world.store.audit.page(limit=1000)
    return tuple(row for row in rows if row.person != "controller")


def ask(api: Api, route: str, address: str, body: object = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    return httpx.request(route.split()[0], api.url + address, headers=headers, content=content)


def test_every_change_adds_exactly_one_row(api: Api, tmp_path: Path) -> None:
    run(api)  # a job that can be resumed
    trial = replace(SPEC, name="trial", study="sweep")
    api.client.submit(trial)
    api.world.store.programs.remember(memory("known"))
    archive, sha256 = packed(tmp_path)
    upload = Step(
        "PUT /v1/bundles/{sha256}",
        f"/v1/bundles/{sha256}",
        ("add bundle", sha256, "", ""),
        archive.read_bytes(),
    )
    for step in (*STEPS, upload):
        before = len(rows_by_people(api))
        reply = ask(api, step.route, step.address, step.body)
        assert reply.is_success, (step.route, reply.text)
        rows = rows_by_people(api)
        assert len(rows) == before + 1, step.route
        row = rows[0]
        assert (row.person, row.token, row.role) == ("owner", "client.json", "admin")
        assert row.at_seconds == api.world.clock.now()
        assert (row.action, row.subject, row.before) == step.row[:3]
        assert row.after.startswith(step.row[3]) and bool(row.after) == bool(step.row[3])
    assert_complete({step.route for step in (*STEPS, upload)} | AUDITED_WITH_TARGETS)


def assert_complete(audited: set[str]) -> None:
    """Check that each route for people is either audited above, or silent."""
    keys = {f"{route.method} {route.path}" for route in ROUTES if not route.is_of_nodes}
    reads = {key for key in keys if key.split()[0] in ("GET", "HEAD")}
    assert keys == audited | reads | SILENT, "audit a route that changes something"


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if not route.is_of_nodes], ids=lambda route: route.path
)
def test_a_read_or_a_refused_change_adds_no_row(api: Api, route: Route) -> None:
    api.client.submit(SPEC)
    before = rows_by_people(api)
    is_silent = route.method in ("GET", "HEAD") or f"{route.method} {route.path}" in SILENT
    body = {"job-0-1": 0} if route.path.endswith("/logs") else None
    name = "job" if is_silent else "nothing"
    if not is_silent and route.path in ("/v1/freeze", "/v1/unfreeze", "/v1/drain"):
        pytest.skip("nothing can be wrong with the request")
    if (route.method, route.path) == ("POST", "/v1/people/{name}"):
        name = "owner"
    reply = ask(api, route.method, route.address(name), b"{" if not is_silent else body)
    has_no_effect = (route.method, route.path) == ("DELETE", "/v1/studies/{study}/lease")
    assert is_silent or has_no_effect or reply.is_error, reply.text
    assert rows_by_people(api) == before


def test_renewals_and_messages_of_a_driver_add_no_row(api: Api) -> None:
    lease = {"holder": "me", "seconds": 60.0}
    steps = [
        ("POST /lease", "/v1/studies/sweep/lease", lease),
        ("POST /terms", "/v1/studies/sweep/terms", TERMS),
    ]
    for _ in range(2):
        for route, address, body in steps:
            assert ask(api, route, address, body).is_success
        answers = {"holder": "me", "answers": []}
        assert ask(api, "POST", "/v1/studies/sweep/answers", answers).is_success
    assert [row.action for row in rows_by_people(api)] == ["state terms", "drive study"]


def test_the_log_has_pages_and_is_for_admins(api: Api) -> None:
    client = api.client
    client.invite("ada")
    for name in ("one", "two", "three"):
        client.create_token(TokenRequest(name), "ada")
    subjects = [row.subject for row in client.audit()]
    assert subjects == ["ada/three", "ada/two", "ada/one", "ada"]
    first = client.audit(limit=3)
    rest = client.audit(below=first[-1].number)
    assert (*first, *rest) == client.audit()
    assert client.audit(api.world.clock.now() + 1) == ()


def test_an_invitation_that_changes_a_person_names_the_earlier_role(api: Api) -> None:
    api.client.invite("ada", InvitationRequest(Role.VIEWER, "nlp"))
    api.client.invite("ada", InvitationRequest(Role.ADMIN))
    row = rows_by_people(api)[0]
    assert (row.before, row.after) == ("viewer, team nlp", "admin, team nlp")


def test_long_values_are_shortened(api: Api) -> None:
    api.client.submit(SPEC)
    offers = tuple(f"offer-{number}" for number in range(200))
    bounds = InstanceBounds(maximum=2, offers=offers)
    with pytest.raises(SpecError):
        api.client.change("job", Change(instances=bounds))
    api.client.change("job", Change(instances=InstanceBounds(maximum=2, offers=("small",) * 200)))
    row = rows_by_people(api)[0]
    assert len(row.after) == MOST_LETTERS and row.after.endswith("...")


def test_the_token_that_made_a_change_is_named(api: Api) -> None:
    ada = api.stranger(api.client.invite("ada").token)
    ci = api.stranger(ada.create_token(TokenRequest("ci", is_service=True)).token)
    ci.submit(SPEC)
    row = rows_by_people(api)[0]
    assert (row.person, row.token, row.role, row.action) == ("ada", "ci", "submitter", "submit")


def test_pages_of_the_log_and_of_people_have_every_row_once(api: Api) -> None:
    for name in ("ada", "bob", "eve"):
        api.client.invite(name)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for path, key, items in (
        ("/v1/audit", "number", len(api.client.audit())),
        ("/v1/people", "name", len(api.client.people())),
    ):
        address, found = f"{path}?limit=2", []
        while address:
            reply = httpx.get(f"{api.url}{address}", headers=headers)
            found += [row[key] for row in reply.json()]
            address = reply.links["next"]["url"] if "next" in reply.links else ""
        assert len(found) == len(set(found)) == items
        wrong = httpx.get(f"{api.url}{path}?cursor=x", headers=headers)
        assert (wrong.status_code, wrong.json()["field"]) == (422, "cursor")
