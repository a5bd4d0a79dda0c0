"""Commands on people, tokens and the audit log, on a controller that answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.access import Role
from autoscaler.domain.errors import CastorError, Forbidden, SpecError
from autoscaler.domain.job import JobSpec
from autoscaler.wire.access_messages import InvitationRequest
from tests.cli.access.inline import castor, run
from tests.controller.world import World
from tests.service.conftest import Api, served


@pytest.fixture
def api(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with served(World(tmp_path, template=template), tmp_path) as api:
        monkeypatch.setenv("CASTOR_URL", api.url)
        monkeypatch.setenv("CASTOR_TOKEN", api.token)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(SystemClock, "now", lambda _: api.world.clock.now())
        yield api


def test_people_are_invited_listed_changed_and_removed(api: Api) -> None:
    invited = json.loads(
        castor("invite", "ada", "--role", "viewer", "--team", "nlp", "--expires", "1d", "--json")
    )
    assert (invited["role"], invited["team"]) == ("viewer", "nlp")
    assert invited["expires_seconds"] == api.world.clock.now() + 86_400
    assert "ada     viewer  nlp   1       never" in castor("people")
    assert castor("people", "list") == castor("people")
    assert castor("people", "list", "--json") == castor("people", "--json")
    changed = castor("people", "set", "ada", "--role", "operator", "--team", "none")
    assert changed == "ada: operator, team none\n"
    (ada, _) = json.loads(castor("people", "--json"))
    assert (ada["name"], ada["role"], ada["team"]) == ("ada", "operator", None)
    assert "all tokens revoked" in castor("people", "remove", "ada")
    assert "ada" not in castor("people")


def test_castor_open_prints_an_address_that_signs_a_browser_in(api: Api) -> None:
    address = castor("open", "--no-browser").strip()
    reply = httpx.get(address)
    assert reply.status_code == 303 and "castor-session=" in reply.headers["set-cookie"]


def test_a_change_of_nothing_is_a_mistake_of_usage(api: Api) -> None:
    result = run("people", "set", "ada")
    assert result.exit_code == 2
    assert "--role or --team" in result.output


def test_tokens_are_made_listed_replaced_and_revoked(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = api.client.invite("ada", InvitationRequest(Role.OPERATOR)).token
    monkeypatch.setenv("CASTOR_TOKEN", token)
    text = castor("token", "create", "ci", "--service", "--role", "viewer", "--expires", "30d")
    made = text.removeprefix("CASTOR_TOKEN=").strip()
    assert api.stranger(made).jobs() == ()
    rotated = json.loads(castor("token", "rotate", "ci", "--json"))["token"]
    listed = castor("token", "list")
    assert listed.count("viewer, service") == 2
    assert "replaced, valid for a while" in listed and made not in listed
    assert api.stranger(made).jobs() == api.stranger(rotated).jobs() == ()
    assert castor("token", "revoke", "ci") == "ci: revoked\n"
    states = [row["revoked_seconds"] for row in json.loads(castor("token", "list", "--json"))]
    assert states == [*[api.world.clock.now()] * 2, None], "the tokens called ci, and the other"
    with pytest.raises(Forbidden):
        run("token", "list", "--for", "owner")


def test_a_token_that_would_outlive_its_maker_is_refused_with_the_latest_moment(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = api.client.invite("ada", InvitationRequest(valid_seconds=3600.0)).token
    monkeypatch.setenv("CASTOR_TOKEN", token)
    with pytest.raises(SpecError, match=r"ends at .* UTC: leave the validity \(--expires\) out"):
        run("token", "create", "ci", "--expires", "90d")
    made = json.loads(castor("token", "create", "ci", "--json"))
    assert made["expires_seconds"] == api.world.clock.now() + 3600.0


def test_a_duration_that_is_none_is_a_mistake_of_usage(api: Api) -> None:
    for words in (("token", "create", "ci", "--expires", "soon"), ("audit", "--since", "then")):
        result = run(*words)
        assert result.exit_code == 2
        assert "is not a duration" in result.output


def test_the_audit_log_is_printed_page_by_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoscaler.wire.client._PAGE_ITEMS", 2)
    for name in ("one", "two", "three"):
        castor("token", "create", name)
    castor("freeze")
    rows = json.loads(castor("audit", "--json"))
    assert [row["action"] for row in rows] == ["freeze", *["create token"] * 3]
    assert len(json.loads(castor("audit", "-n", "3", "--json"))) == 3
    table = castor("audit")
    assert "create token  owner/three" in table
    api.world.clock.advance(7 * 86_400.0 + 1)
    assert json.loads(castor("audit", "--json")) == [], "the last week only"
    assert len(json.loads(castor("audit", "--since", "8d", "--json"))) == 4


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("invite", "a?b"), "name"),
        (("invite", "../x"), "name"),
        (("invite", ""), "name"),
        (("people", "set", "a/b", "--role", "viewer"), "name"),
        (("people", "remove", ".."), "name"),
        (("token", "revoke", "a/b"), "token"),
        (("token", "list", "--for", "a/b"), "name"),
        (("budget", "set", "team:a/b", "--month", "5"), "scope"),
        (("budget", "remove", "team:a/b"), "scope"),
        (("stop", "a/b"), "name"),
        (("resume", ""), "name"),
        (("set", "", "priority=2"), "name"),
        (("fetch", "a/b"), "name"),
        (("programs", "forget", "a/b"), "name"),
    ],
)
def test_a_name_that_can_not_exist_is_refused_by_its_field(
    api: Api, words: tuple[str, ...], field: str
) -> None:
    with pytest.raises(SpecError) as refused:
        run(*words)
    assert refused.value.field == field
    assert [person.name for person in api.client.people()] == ["owner"]


def test_a_name_with_a_question_mark_means_nothing_else(api: Api) -> None:
    castor("invite", "ada", "--role", "operator")
    job = api.client.submit(JobSpec("digits", ("true",)))
    for words in (
        ("people", "set", "ada?b", "--role", "viewer"),
        ("people", "remove", "ada?b"),
        ("set", "digits?oops", "priority=2"),
        ("stop", "digits?oops"),
    ):
        with pytest.raises(CastorError, match=r"(ada\?b|digits\?oops)"):
            run(*words)
    assert api.client.job("digits").version == job.version
    assert [(one.name, one.role) for one in api.client.people()] == [
        ("ada", Role.OPERATOR),
        ("owner", Role.ADMIN),
    ]
