"""Rules of every route of the application."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyLease
from tests.controller.world import World
from tests.service.agents import SPEC, joined
from tests.service.conftest import TOKEN, Api, application, served

JOIN = ("POST", "/v1/node/join")
# Routes of people who log in, who have no token yet.
LOGINS = {
    ("POST", "/v1/logins"),
    ("POST", "/v1/logins/token"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("GET", "/login/callback"),
}
OPEN = {JOIN, *LOGINS}
HOSTILE_NAMES = (
    "..",
    "../../victim",
    "/etc/passwd",
    "*",
    "x') || true || ('",
    "\x1b[2J",
    "a\0b",
    "a\nb",
    "é" * 200,
    "x" * 1500,
    "9" * 64,
    "%2e%2e%2fvictim",
)
HOSTILE_NUMBERS = ("NaN", "Infinity", "-1", str(10**30), "x")
HOSTILE_BODIES = (b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 50_000, b'{"a": 1e999}')
HOSTILE_LEAVES = ("\x1b[2J../../victim\0", "NaN", -1, 10**30, 1e300, None, [], {}, "x" * 5_000)
BENIGN = {"job": "job", "holder": "me", "first": "2026-01-01", "last": "2026-01-02"}
CALL = {"number": 1, "text": "[]", "file": {"name": "a", "sha256": "0" * 64}}
PROGRESS = {"job": "job", "progress": 1.0, "reports": [[1.0, 0.5]], "features": {"rate": 0.1}}
BODIES: dict[str, Any] = {
    "POST /v1/jobs": {
        "spec": {
            "name": "other",
            "command": ["true"],
            "environment": {"A": "b"},
            "secrets": {"KEY": {"variable": "HF_TOKEN"}},
            "data": [{"source": "/data", "target": "data"}],
            "checkpoint": {"directory": "models", "interval_seconds": 60.0, "keep": 2},
            "outputs": {"patterns": ["results"]},
            "instances": {"minimum": 1, "maximum": 2},
            "batch": {"initial": 1, "maximum": 64, "adaptive": True},
            "objective": {"preference": "balanced"},
            "total_examples": 1e6,
            "retries": 3,
            "priority": 1.0,
        }
    },
    "PATCH /v1/jobs/{name}": {
        "instances": {"minimum": 1, "maximum": 2},
        "objective": {"preference": "value_of_time", "value_of_time_usd_per_hour": 40.0},
        "priority": 1.0,
    },
    "POST /v1/jobs/{name}/logs": {"job-0-1": 0},
    "POST /v1/jobs/{name}/what-if": {
        "value_of_time_usd_per_hour": 40.0,
        "deadline_seconds": 1e9,
        "budget_usd": "5",
        "maximum": 2,
    },
    "POST /v1/studies/{study}/budget": {"budget_usd": "5"},
    "POST /v1/studies/{study}/lease": {"holder": "me", "seconds": 60.0},
    "POST /v1/studies/{study}/terms": {
        "holder": "me",
        "terms": {"to_begin": 5, "full_work": 10.0, "later": [{"trials": 2, "work": 3.0}]},
        "trials": [PROGRESS],
    },
    "POST /v1/studies/{study}/answers": {
        "holder": "me",
        "answers": [{"job": "job", "incarnation": 1, "answer": {"number": 1, "text": "[]"}}],
        "ended": ["job"],
    },
    "POST /v1/studies/{study}/checkpoints/removal": ["trial-0-20260101T000000000000"],
    "POST /v1/node/join": {"token": "x", "instance": "job-0-1", "proof": "x"},
    "POST /v1/node/heartbeat": {
        "instance": "job-0-1",
        "phase": "training",
        "attempt": 1,
        "devices_used": 1,
        "started_seconds": 1.0,
        "reclaim_seconds": None,
        "job": "job",
        "notes": ["a note"],
        "failure": {
            "instance": "job-0-1",
            "attempt": 1,
            "exit_code": 1,
            "cause": "cause",
            "signature": "s",
            "steps": 1,
        },
        "transfer": {"begun_seconds": 1.0, "transfer": {"sent_bytes": 1, "fetched_bytes": 1}},
    },
    "POST /v1/node/trial/calls": {"incarnation": 1, "calls": [CALL], "job": "job"},
}
BODIES |= {
    "POST /v1/people/{name}": {"role": "viewer", "team": "nlp", "valid_seconds": 3600.0},
    "POST /v1/people": {"name": "bob", "role": "viewer", "team": "nlp"},
    "PATCH /v1/people/{name}": {"role": "viewer", "team": "nlp", "leaves_team": False},
    "POST /v1/people/{name}/tokens": {
        "name": "laptop",
        "role": "viewer",
        "is_service": True,
        "valid_seconds": 3600.0,
    },
}
BODIES |= {
    "PUT /v1/budgets/{scope}": {
        "month_usd": "500",
        "total_usd": "9000",
        "hourly_usd": "20",
        "zone": "Europe/Berlin",
    },
    "PUT /v1/costs/bills/{provider}": {
        "cloud": "AWS",
        "deployment": "prod",
        "days": [{"day": "2026-11-01", "ledger_usd": "10", "billed_usd": "10.2"}],
    },
    "POST /v1/logins": {"host": "laptop"},
    "POST /v1/logins/token": {"device_code": "x"},
}
BODIES["POST /v1/plans"] = BODIES["POST /v1/jobs"]
BODIES["POST /v1/jobs/{name}/resume"] = BODIES["PATCH /v1/jobs/{name}"]


@dataclass(frozen=True)
class Route:
    """One method of one path, with the names of its parameters."""

    method: str
    path: str
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    has_json: bool = False

    @property
    def is_of_nodes(self) -> bool:
        return self.path.startswith("/v1/node/")

    def address(self, name: str, hostile: Mapping[str, str] | None = None) -> str:
        """Return an address with benign values but for those that are given."""
        path = re.sub(r"\{\w+\}", quote(name, safe=""), self.path)
        values = {key: BENIGN.get(key, "1") for key in self.required} | dict(hostile or {})
        return f"{path}?{urlencode(values)}"

    @property
    def hostile_addresses(self) -> Iterator[str]:
        """Yield the address with one hostile part each."""
        if "{" in self.path:
            yield from (self.address(name) for name in HOSTILE_NAMES)
        for key in (*self.required, *self.optional):
            yield from (self.address("job", {key: value}) for value in HOSTILE_NUMBERS)

    @property
    def hostile_bodies(self) -> Iterator[bytes]:
        """Yield bodies that are none, and a good one with one hostile part each."""
        if self.method in ("POST", "PUT", "PATCH"):
            yield from HOSTILE_BODIES
        if self.has_json:
            body = BODIES.get(f"{self.method} {self.path}", {})
            yield from (json.dumps(changed).encode() for changed in mutated(body))


def routes() -> Iterator[Route]:
    for path, methods in application().openapi()["paths"].items():
        for method, told in methods.items():
            parameters = [each for each in told.get("parameters", ()) if each["in"] == "query"]
            yield Route(
                method.upper(),
                path,
                tuple(each["name"] for each in parameters if each["required"]),
                tuple(each["name"] for each in parameters if not each["required"]),
                f"{method.upper()} {path}" in BODIES,
            )


def mutated(value: Any) -> Iterator[Any]:
    """Yield copies of a JSON value, each with a hostile part in place of one of its parts."""
    yield from HOSTILE_LEAVES
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: changed} for changed in mutated(part))
            yield {**value, "\x1b../victim": part}
    if isinstance(value, list):
        for index, part in enumerate(value):
            for changed in mutated(part):
                yield [*value[:index], changed, *value[index + 1 :]]


ROUTES = tuple(routes())


def tree(directory: Path, without: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_relative_to(without)
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[tuple[Api, Path]]:
    """An API whose state directory has neighbours, and the directory of all of them."""
    outer = tmp_path_factory.mktemp("outer")
    state = outer / "home" / "state"
    for name in ("victim", "home/victim", "home/checkpoints"):
        (outer / name).mkdir(parents=True, exist_ok=True)
        (outer / name / "thesis.tex").write_text("important")
    state.mkdir(parents=True, exist_ok=True)
    with served(World(state, template=template), state) as api:
        yield api, outer


@pytest.fixture(scope="module")
def tokens(home: tuple[Api, Path]) -> tuple[str, str]:
    """Tokens of a person and of an instance at work."""
    api, _ = home
    _, node = joined(api, replace(SPEC, study="job"))
    StudyClient(api.url, TOKEN, "job").lease(StudyLease("me", 300.0))
    node.begin_trial(1.0, "job")
    return TOKEN, node.token or ""


def test_the_application_has_its_routes() -> None:
    assert len(ROUTES) > 40
    assert {(route.method, route.path) for route in ROUTES} >= OPEN


def test_every_route_that_takes_json_has_a_good_body_above(
    home: tuple[Api, Path], tokens: tuple[str, str]
) -> None:
    taken = set()
    for route in ROUTES:
        headers = {"Authorization": f"Bearer {tokens[route.is_of_nodes]}"}
        address = home[0].url + route.address("job")
        if route.method in ("POST", "PUT", "PATCH"):
            reply = httpx.request(route.method, address, headers=headers, content=b"{")
            if "the body is not JSON" in reply.text:
                taken.add(f"{route.method} {route.path}")
    assert taken == set(BODIES), "write a good body of a new route into BODIES"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_refuses_who_shows_no_token_for_it(
    home: tuple[Api, Path], tokens: tuple[str, str], route: Route
) -> None:
    api, (person, node) = home[0], tokens
    if (route.method, route.path) in OPEN:
        pytest.skip("an instance joins, and a person logs in, without a bearer token")
    address = api.url + route.address("job")
    for token in ("wrong", person if route.is_of_nodes else node, "", "a.b.c", "é"):
        headers = {"Authorization": f"Bearer {token}".encode()} if token else {}
        reply = httpx.request(route.method, address, headers=headers)
        assert reply.status_code == 401, (token, reply.text)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_hostile_value_fails_the_controller_or_leaves_its_directory(
    home: tuple[Api, Path], tokens: tuple[str, str], route: Route
) -> None:
    (api, outer), before = home, tree(home[1], home[0].directory)
    headers = {
        "Authorization": f"Bearer {tokens[route.is_of_nodes]}",
        "Content-Type": "application/json",
    }
    asked: list[tuple[str, bytes | None]] = [
        *((address, None) for address in route.hostile_addresses),
        *((route.address("job"), body) for body in route.hostile_bodies),
    ]
    with httpx.Client(base_url=api.url, headers=headers, timeout=30) as client:
        for address, body in asked:
            reply = client.request(route.method, address, content=body)
            assert reply.status_code < 500 or reply.status_code == 503, (address, body, reply.text)
            told = "json" in reply.headers.get("content-type", "")
            assert not (told and "\x1b" in reply.text)
    assert tree(outer, api.directory) == before


texts = st.text(max_size=30)
numbers = st.one_of(st.integers(-(10**25), 10**25), st.sampled_from(["NaN", "Infinity", -1.5]))
specs = st.fixed_dictionaries(
    {"name": st.one_of(texts, st.from_regex(r"[a-z0-9-]{1,45}", fullmatch=True))},
    optional={
        "command": st.lists(texts, max_size=3),
        "program": texts,
        "study": texts,
        "bundle": texts,
        "environment": st.dictionaries(texts, texts, max_size=2),
        "instances": st.fixed_dictionaries({"minimum": numbers, "maximum": numbers}),
        "batch": st.fixed_dictionaries({"initial": numbers, "maximum": numbers}),
        "checkpoint": st.fixed_dictionaries({"directory": texts}),
        "objective": st.fixed_dictionaries({"deadline_seconds": numbers}),
        "total_examples": numbers,
        "retries": numbers,
        "priority": numbers,
        "secrets": st.dictionaries(texts, st.fixed_dictionaries({"file": texts}), max_size=1),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(spec=specs)
def test_any_spec_is_refused_by_a_field_or_has_a_plain_id(
    home: tuple[Api, Path], spec: dict[str, Any]
) -> None:
    api, outer = home
    before = tree(outer, api.directory)
    reply = httpx.post(
        f"{api.url}/v1/jobs",
        headers={"Authorization": f"Bearer {TOKEN}"},
        json={"spec": {"command": ["true"], **spec}},
        timeout=30,
    )
    if reply.status_code == 422:
        assert reply.json()["field"]
    elif reply.status_code == 200:
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}(\.\d+)?", reply.json()["id"])
        api.client.stop(reply.json()["id"])
    else:
        assert reply.status_code in (404, 409)  # a bundle or a name
    assert tree(outer, api.directory) == before


def answered(api: Api, headers: str, body: bytes, request: str = "POST /v1/jobs") -> bytes:
    """Return the answer to a request of which no more is sent than `body`."""
    place = urlsplit(api.url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=20) as line:
        line.sendall(f"{request} HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode() + body)
        reply = b""
        while not reply.endswith(b"}") and (part := line.recv(4096)):
            reply += part
        return reply


def test_a_stranger_is_refused_before_the_body_is_read(home: tuple[Api, Path]) -> None:
    length = f"Content-Length: {64 << 20}\r\n"
    for token in ("", "Authorization: Bearer wrong\r\n"):
        assert answered(home[0], length + token, b"").startswith(b"HTTP/1.1 401 ")
    chunked = "Transfer-Encoding: chunked\r\n"
    assert answered(home[0], chunked, b"").startswith(b"HTTP/1.1 401 ")


def test_a_body_is_read_up_to_a_limit(home: tuple[Api, Path]) -> None:
    owner = f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    body = b'{"spec": "' + b"x" * (1 << 20)
    chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n"
    reply = answered(home[0], f"{owner}Transfer-Encoding: chunked\r\n", chunk)
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"1,048,576 bytes that are taken" in reply


@pytest.mark.parametrize(
    ("request_line", "limit"),
    [
        ("POST /v1/jobs", "1,048,576"),
        ("POST /v1/studies/a/answers", "4,194,304"),
        ("POST /v1/node/join", "65,536"),
        (f"PUT /v1/bundles/{'5' * 64}", "1,000"),
    ],
)
def test_nothing_is_read_of_a_body_that_is_declared_too_large(
    home: tuple[Api, Path], request_line: str, limit: str
) -> None:
    owner = f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    headers = f"{owner}Content-Length: {64 << 20}\r\n"
    reply = answered(home[0], headers, b"", request_line)
    assert reply.startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 422 "))
    assert f"larger than the {limit} bytes that".encode() in reply
