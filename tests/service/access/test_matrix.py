"""Matrix of all routes of the application and all kinds of identities.

The expectations are written down here, apart from the product's own table. A route that is in no
table fails the first test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import httpx
import pytest

from autoscaler.domain.access import Identity, Owner, Role
from autoscaler.domain.job import InstanceBounds
from autoscaler.service.access.permissions import RULES, is_permitted
from autoscaler.service.access.request_gate import SESSION_COOKIE
from autoscaler.service.routes.permits import routes_of
from autoscaler.wire.access_messages import InvitationRequest, TokenRequest
from autoscaler.wire.client import StudyClient
from autoscaler.wire.messages import JoinRequest
from autoscaler.wire.study_messages import StudyLease
from tests.conformance.store_programs import memory
from tests.controller.world import World
from tests.service.agents import SPEC, joined
from tests.service.conftest import Api, application, served
from tests.service.jobs.test_resume import give_back
from tests.service.test_every_route import JOIN, LOGINS, ROUTES, Route

JOB, PERSON, SHA = "job", "ada", "0" * 64
# Tokens that no route takes.
NOBODY: Final = ("none", "invalid", "expired", "revoked")
PEOPLE: Final = ("viewer", "other", "team", "submitter", "service", "operator", "admin")
NODES: Final = ("node", "node of another job", "ended node")

EVERYONE: Final = frozenset(PEOPLE)
SUBMITTERS: Final = EVERYONE - {"viewer"}
OWN: Final = frozenset({"submitter", "team", "service", "operator", "admin"})
OPERATORS: Final = frozenset({"operator", "admin"})
ADMINS: Final = frozenset({"admin"})
SELF: Final = frozenset({"submitter", "admin"})

ALLOWED: Final[dict[str, frozenset[str]]] = {
    "GET /v1/jobs": EVERYONE,
    "GET /v1/openapi.json": EVERYONE,
    "GET /v1/jobs/{name}": EVERYONE,
    "GET /v1/jobs/{name}/decisions": EVERYONE,
    "GET /v1/jobs/{name}/forecast": EVERYONE,
    "GET /v1/jobs/{name}/curve": EVERYONE,
    "GET /v1/jobs/{name}/outlook": EVERYONE,
    "GET /v1/studies": EVERYONE,
    "GET /v1/studies/{study}/history": EVERYONE,
    "GET /v1/jobs/{name}/history": EVERYONE,
    "POST /v1/jobs/{name}/what-if": EVERYONE,
    "GET /v1/jobs/{name}/receipt": EVERYONE,
    "GET /v1/jobs/{name}/counterfactual": EVERYONE,
    "GET /v1/costs/focus": EVERYONE,
    "POST /v1/jobs": SUBMITTERS,
    "POST /v1/plans": SUBMITTERS,
    "PATCH /v1/jobs/{name}": OWN,
    "POST /v1/jobs/{name}/stop": OWN,
    "POST /v1/jobs/{name}/resume": OWN,
    "POST /v1/jobs/{name}/logs": OWN,
    "GET /v1/jobs/{name}/spec": OWN,
    "GET /v1/jobs/{name}/outputs": OWN,
    "GET /v1/jobs/{name}/outputs/{instance}/{sha256}": OWN,
    "GET /v1/jobs/{name}/checkpoint": OWN,
    "GET /v1/jobs/{name}/checkpoints/{checkpoint}/{file}": OWN,
    "GET /v1/fleet": EVERYONE,
    "GET /metrics": EVERYONE,
    "GET /v1/offers": EVERYONE,
    "GET /v1/costs": EVERYONE,
    "GET /v1/costs/days": EVERYONE,
    "GET /v1/costs/bills": EVERYONE,
    "PUT /v1/costs/bills/{provider}": OPERATORS,
    "POST /v1/freeze": OPERATORS,
    "POST /v1/unfreeze": OPERATORS,
    "POST /v1/drain": OPERATORS,
    "HEAD /v1/bundles/{sha256}": SUBMITTERS,
    "PUT /v1/bundles/{sha256}": SUBMITTERS,
    "GET /v1/budgets": EVERYONE,
    "GET /v1/budgets/{scope}": EVERYONE,
    "PUT /v1/budgets/{scope}": ADMINS,
    "DELETE /v1/budgets/{scope}": ADMINS,
    "GET /v1/programs": EVERYONE,
    "GET /v1/programs/{name}": EVERYONE,
    "DELETE /v1/programs/{name}": OWN,
    "GET /v1/people": ADMINS,
    "POST /v1/people": ADMINS,
    "POST /v1/people/{name}": ADMINS,
    "PATCH /v1/people/{name}": ADMINS,
    "DELETE /v1/people/{name}": ADMINS,
    "GET /v1/people/{name}/tokens": SELF,
    "POST /v1/people/{name}/tokens": SELF,
    "POST /v1/people/{name}/tokens/{token}/rotation": SELF,
    "DELETE /v1/people/{name}/tokens/{token}": SELF,
    "GET /v1/audit": ADMINS,
    "POST /v1/browser-links": EVERYONE - {"service"},
    "GET /v1/notifications": OPERATORS,
    "POST /v1/notifications/test": OPERATORS,
    "GET /v1/studies/{study}": EVERYONE,
    "GET /v1/studies/{study}/stays": OWN,
    "POST /v1/studies/{study}/budget": OWN,
    "POST /v1/studies/{study}/stop": OWN,
    "POST /v1/studies/{study}/lease": OWN,
    "DELETE /v1/studies/{study}/lease": OWN,
    "POST /v1/studies/{study}/terms": OWN,
    "GET /v1/studies/{study}/calls": OWN,
    "POST /v1/studies/{study}/answers": OWN,
    "GET /v1/studies/{study}/files/{sha256}": OWN,
    "DELETE /v1/studies/{study}/files/{sha256}": OWN,
    "POST /v1/studies/{study}/checkpoints/removal": OWN,
}
# Status for the node of another job, and for an ended node whose job goes on; None: not refused.
NODE_STATUS: Final[dict[str, tuple[int | None, int | None]]] = {
    "GET /v1/node/assignment": (None, 401),
    "GET /v1/node/grant": (409, 401),
    "GET /v1/node/bundle": (None, 401),
    "POST /v1/node/heartbeat": (401, None),
    "POST /v1/node/logs": (409, None),
    "POST /v1/node/trial": (409, 401),
    "POST /v1/node/trial/calls": (409, 401),
    "PUT /v1/node/trial/files/{sha256}": (None, 401),
    "GET /v1/node/trial/answers": (409, 401),
}
# Status of an invalid request to log in, from any identity; a page without a code is valid.
LOGIN_STATUS: Final = {
    "POST /v1/logins": 422,
    "POST /v1/logins/token": 422,
    "GET /login": 200,
    "POST /login": 401,
    "GET /login/callback": 401,
}

# Pages and their forms, for the identities that may see and send them.
PAGES: Final[dict[str, frozenset[str]]] = {
    "GET /": EVERYONE,
    "GET /jobs": EVERYONE,
    "GET /jobs/{name}": EVERYONE,
    "GET /jobs/{name}/what-if": EVERYONE,
    "GET /jobs/{name}/counterfactual": EVERYONE,
    "GET /jobs/{name}/log": OWN,
    "GET /jobs/{name}/change": OWN,
    "POST /jobs/{name}/change": OWN,
    "GET /jobs/{name}/stop": OWN,
    "POST /jobs/{name}/stop": OWN,
    "POST /jobs/{name}/resume": OWN,
    "GET /jobs/{name}/again": OWN,
    "POST /jobs/{name}/again": OWN,
    "GET /submit": SUBMITTERS,
    "POST /submit/upload": SUBMITTERS,
    "GET /studies": EVERYONE,
    "GET /studies/{study}": EVERYONE,
    "GET /studies/{study}/budget": OWN,
    "POST /studies/{study}/budget": OWN,
    "GET /studies/{study}/stop": OWN,
    "POST /studies/{study}/stop": OWN,
    "GET /offers": EVERYONE,
    "GET /costs": EVERYONE,
    "GET /costs/budgets": ADMINS,
    "POST /costs/budgets": ADMINS,
    "GET /costs/budgets/{scope}": ADMINS,
    "POST /costs/budgets/{scope}": ADMINS,
    "GET /costs/budgets/{scope}/removal": ADMINS,
    "POST /costs/budgets/{scope}/removal": ADMINS,
    "GET /events": EVERYONE,
    "POST /fleet/freeze": OPERATORS,
    "POST /fleet/unfreeze": OPERATORS,
    "GET /fleet/drain": OPERATORS,
    "POST /fleet/drain": OPERATORS,
    "GET /people": ADMINS,
    "POST /people/{name}/invitation": ADMINS,
    "POST /people/{name}/standing": ADMINS,
    "GET /people/{name}/removal": ADMINS,
    "POST /people/{name}/removal": ADMINS,
    "GET /people/{name}": SELF,
    "POST /people/{name}/tokens": SELF,
    "GET /people/{name}/tokens/{token}/revocation": SELF,
    "POST /people/{name}/tokens/{token}/revocation": SELF,
    "GET /audit": ADMINS,
    "POST /sign-out": EVERYONE,
    "POST /theme": EVERYONE,
}
# Pages that begin a session, or that all pages load.
OPEN_TO_ALL: Final = frozenset(
    {"GET /sign-in", "POST /sign-in", "GET /open", "GET /sign-in/provider", "GET /static/{name}"}
)


@dataclass
class Matrix:
    """An API with one token of each kind."""

    api: Api
    tokens: dict[str, str | None] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)

    def status(self, identity: str, route: Route) -> int:
        """Return the status of a request that is valid but for its authorization."""
        token = self.tokens[identity]
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        body = self._body(identity, route)
        address = self.api.url + self._address(route)
        return httpx.request(route.method, address, headers=headers, content=body).status_code

    def page_status(self, key: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return the status of a request of a page, and where it leads."""
        method, path = key.split(" ")
        is_of_tokens = path == "/people/{name}" or "/tokens" in path
        name = (PERSON if is_of_tokens else "zoe") if path.startswith("/people") else JOB
        address = self.api.url + re.sub(r"\{\w+\}", name, path)
        with httpx.stream(method, address, headers=headers) as reply:  # events have no end
            return reply.status_code, reply.headers.get("location", "")

    def bearer(self, identity: str) -> dict[str, str]:
        token = self.tokens[identity]
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def cookie(self, identity: str) -> dict[str, str]:
        token = self.tokens[identity]
        return {} if token is None else {"Cookie": f"{SESSION_COOKIE}={token}"}

    def _address(self, route: Route) -> str:
        name = JOB
        if route.path.startswith("/v1/people/"):
            name = PERSON if "/tokens" in route.path else "zoe"
        given = {"job": JOB, "incarnation": "1", "after": "0", "holder": "me"}
        asked = {key: given[key] for key in (*route.required, *route.optional) if key in given}
        return route.address(name, asked).replace(f"bundles/{JOB}", f"bundles/{SHA}")

    def _body(self, identity: str, route: Route) -> bytes | None:
        if route.path == "/v1/node/heartbeat":
            instance = self.instances.get("node" if "another" in identity else identity, "")
            report = {"instance": instance, "phase": "preparing", "attempt": 1, "devices_used": 1}
            return httpx.Request("POST", "http://a", json=report).content
        if route.path == "/v1/node/trial/calls":
            return b'{"incarnation": 1, "calls": [], "job": "job"}'
        return b"[" if route.has_json else None


def key_of(route: Route) -> str:
    return f"{route.method} {route.path}"


def _add_people(matrix: Matrix) -> None:
    api, owner = matrix.api, matrix.api.client
    people = {
        "viewer": ("vic", Role.VIEWER, None),
        "other": ("eve", Role.SUBMITTER, "vision"),
        "team": ("bob", Role.SUBMITTER, "nlp"),
        "submitter": (PERSON, Role.SUBMITTER, "nlp"),
        "operator": ("oscar", Role.OPERATOR, None),
        "admin": ("amy", Role.ADMIN, None),
        "expired": ("old", Role.ADMIN, None),
        "revoked": ("gone", Role.ADMIN, None),
    }
    for identity, (name, role, team) in people.items():
        seconds = 1.0 if identity == "expired" else None
        invitation = owner.invite(name, InvitationRequest(role, team, seconds))
        matrix.tokens[identity] = invitation.token
    owner.revoke_token("invitation", "gone")
    api.world.clock.advance(2.0)
    ada = api.stranger(matrix.tokens["submitter"] or "")
    matrix.tokens["service"] = ada.create_token(TokenRequest("ci", is_service=True)).token


def _add_nodes(matrix: Matrix) -> None:
    api, ada = matrix.api, matrix.tokens["submitter"] or ""
    spec = replace(SPEC, study=JOB, instances=InstanceBounds(minimum=1, maximum=2))
    own = replace(api, token=ada)
    held, node = joined(own, spec, 2)
    _, ended = api.world.store.instances.of_job(held.job)
    api.authentication.issue(ended)
    gone = api.node()
    gone.join(JoinRequest(api.authentication.join_token(ended), ended.id))
    give_back(api, ended)
    other, stranger = joined(api, replace(SPEC, name="elsewhere", study="elsewhere"))
    for identity, instance, client in (
        ("node", held, node),
        ("node of another job", other, stranger),
        ("ended node", ended, gone),
    ):
        matrix.tokens[identity] = client.token
        matrix.instances[identity] = instance.id
    StudyClient(api.url, ada, JOB).lease(StudyLease("me", 300.0))
    node.begin_trial(1.0, JOB)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Matrix]:
    state = tmp_path_factory.mktemp("state")
    with served(World(state, template=template), state) as api:
        matrix = Matrix(api, {"none": None, "invalid": "no such token"})
        _add_people(matrix)
        _add_nodes(matrix)
        api.world.store.programs.remember(memory(JOB))
        yield matrix


def test_every_route_is_in_a_table() -> None:
    routes = {key_of(route) for route in ROUTES if (route.method, route.path) != JOIN}
    assert routes == set(ALLOWED) | set(NODE_STATUS) | set(LOGIN_STATUS), (
        "add the route, and who may use it"
    )


@pytest.mark.parametrize("identity", (*NOBODY, *PEOPLE, *NODES))
def test_a_token_changes_nothing_for_a_login(matrix: Matrix, identity: str) -> None:
    logins = [route for route in ROUTES if (route.method, route.path) in LOGINS]
    assert {key_of(route): matrix.status(identity, route) for route in logins} == LOGIN_STATUS


@pytest.mark.parametrize("route", ROUTES, ids=key_of)
def test_a_route_permits_those_in_the_table_only(matrix: Matrix, route: Route) -> None:
    key = key_of(route)
    if key in ALLOWED:
        for identity in (*NOBODY, *NODES):
            assert matrix.status(identity, route) == 401, identity
        for identity in PEOPLE:  # those who are refused come first, and change nothing
            status = matrix.status(identity, route)
            assert (status not in (401, 403)) == (identity in ALLOWED[key]), (identity, status)
            assert status != 401, identity
    elif key in NODE_STATUS:
        for identity in (*NOBODY, *PEOPLE):
            assert matrix.status(identity, route) == 401, identity
        assert matrix.status("node", route) not in (401, 403, 409)
        for identity, expected in zip(NODES[1:], NODE_STATUS[key], strict=True):
            status = matrix.status(identity, route)
            assert status == expected or (expected is None and status not in (401, 403, 409)), (
                identity,
                status,
            )


def test_every_page_is_in_a_table() -> None:
    pages = {
        f"{method} {route.path}"
        for route in routes_of(application().routes)
        if not route.include_in_schema
        for method in route.methods - {"HEAD"}
    }
    assert pages == set(PAGES) | OPEN_TO_ALL, "add the page, and who may see it"


@pytest.mark.parametrize("key", PAGES)
def test_a_page_permits_those_in_the_table_only(matrix: Matrix, key: str) -> None:
    for identity in (*NOBODY, *NODES):
        assert matrix.page_status(key, matrix.bearer(identity))[0] == 401, identity
        assert matrix.page_status(key, matrix.cookie(identity))[0] == 401, identity
        status, place = matrix.page_status(key, {**matrix.cookie(identity), "Accept": "text/html"})
        if key.startswith("GET"):
            assert (status, place.partition("?")[0]) == (303, "/sign-in"), identity
        else:
            assert status == 401, identity
    for identity in PEOPLE:
        status, _ = matrix.page_status(key, matrix.bearer(identity))
        assert status < 500 and status != 401, identity
        assert (status != 403) == (identity in PAGES[key]), (identity, status)
        by_cookie, _ = matrix.page_status(key, matrix.cookie(identity))
        if key.startswith("GET"):
            assert by_cookie == status, identity
        else:
            without_form = (401, 403, 422) if "upload" in key else (401, 403)
            assert by_cookie in without_form, f"{identity} sent no form of a page"


def test_pages_that_begin_a_session_answer_everyone_alike(matrix: Matrix) -> None:
    for identity in (*NOBODY, *PEOPLE, *NODES):
        for headers in (matrix.bearer(identity), matrix.cookie(identity)):
            assert matrix.page_status("GET /sign-in", headers)[0] == 200, identity
            assert matrix.page_status("GET /static/{name}", headers)[0] == 404, identity
            for key in ("POST /sign-in", "GET /open"):  # without a token, and without a code
                assert matrix.page_status(key, headers)[0] in (401, 429), (identity, key)


def test_every_action_has_a_rule_and_a_higher_role_may_do_as_much() -> None:
    """Compare each role with the next one, for the owner, the team and another person."""
    owner = Owner("ada", "nlp")
    for action in RULES:
        for person, team in (("ada", None), ("bob", "nlp"), ("eve", None)):
            permitted = [
                is_permitted(Identity(person, role, team), action, (owner,)) for role in Role
            ]
            assert permitted == sorted(permitted), (action, person)
            assert permitted[-1], action
