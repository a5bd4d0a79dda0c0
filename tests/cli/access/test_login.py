"""Commands `castor login` and `castor logout`, with a browser that a test drives."""

from __future__ import annotations

import json
import re
import stat
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Forbidden, NotAllowed, NotFound, SpecError, Unavailable
from autoscaler.service.access.people import PeopleAccess
from autoscaler.wire.access_messages import BegunLogin, LoginReply, LoginRequest
from autoscaler.wire.connection import address_and_token, login_file, saved_login
from autoscaler.wire.login_client import LoginClient
from tests.cli.access.inline import castor, run
from tests.controller.world import World
from tests.service.conftest import Api, served
from tests.service.identity import Browser

ADA = "ada@example.org"


@pytest.fixture
def api(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """API, and a person on another machine without a display, a token or a controller."""
    for variable in ("CASTOR_URL", "CASTOR_TOKEN", "CASTOR_CA", "CASTOR_STATE"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    state = tmp_path / "state"
    state.mkdir()
    with served(World(state, template=template), state) as api:
        monkeypatch.setattr(SystemClock, "monotonic", lambda _: api.world.clock.now())
        yield api


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """User codes that terminals have printed and nobody has typed yet."""
    codes: list[str] = []
    begin = LoginClient.begin

    def noted(client: LoginClient, request: LoginRequest) -> BegunLogin:
        begun = begin(client, request)
        codes.append(begun.user_code)
        return begun

    monkeypatch.setattr(LoginClient, "begin", noted)
    return codes


@pytest.fixture
def visit(
    api: Api, codes: list[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str | None], None]:
    """Function that sets what the person does in the browser while the terminal waits."""

    def set_decision(decision: str | None) -> None:
        def sleep(_: SystemClock, seconds: float) -> None:
            api.world.clock.advance(seconds)
            if decision is not None and codes:
                browser = Browser(api.url)
                redirect = browser.http.get(f"/login?code={codes.pop()}")
                browser.decide(browser.answer(redirect), decision)

        monkeypatch.setattr(SystemClock, "sleep", sleep)

    return set_decision


def test_a_person_logs_in_works_and_logs_out(
    api: Api, visit: Callable[[str | None], None]
) -> None:
    visit("approve")
    printed = castor("login", api.url)
    code = re.search(rf"{api.url}/login\?code=(\S+)", printed)
    assert code is not None and f"It shows the code {code[1]}. Waiting for 10 min" in printed
    assert f"logged in as {ADA} at {api.url} until 1970-01-13 01:46 UTC" in printed
    saved = saved_login()
    assert saved is not None and saved.token not in printed
    assert stat.S_IMODE(login_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(login_file().parent.stat().st_mode) == 0o700
    assert json.loads(castor("status", "--json")) == []
    assert [token["name"] for token in json.loads(castor("token", "list", "--json"))] == [
        saved.name
    ]
    assert castor("logout") == f"logged out of {api.url}\n"
    assert not login_file().exists()
    with pytest.raises(NotAllowed, match=r"was revoked .*run castor login again"):
        api.stranger(saved.token).jobs()
    assert castor("logout") == "nobody is logged in here\n"
    with pytest.raises(Unavailable, match="no controller found"):
        run("status")


def test_the_next_login_replaces_the_one_before(
    api: Api, visit: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    visit("approve")
    castor("login", api.url)
    first = saved_login()
    castor("login", "--no-browser")
    second = saved_login()
    assert first is not None and second is not None and first.url == second.url == api.url
    assert api.stranger(second.token).jobs() == ()
    with pytest.raises(NotAllowed):
        api.stranger(first.token).jobs()
    login_file().write_text("{")
    monkeypatch.setenv("CASTOR_URL", api.url)
    castor("login")
    assert address_and_token().url == api.url


def test_a_login_that_is_denied_leaves_nothing(
    api: Api, visit: Callable[[str | None], None]
) -> None:
    visit("deny")
    with pytest.raises(Forbidden, match="the login was denied in the browser"):
        run("login", api.url)
    assert not login_file().exists() and len(api.client.people()) == 1


def test_a_login_that_nobody_approves_ends(api: Api, visit: Callable[[str | None], None]) -> None:
    visit(None)
    with pytest.raises(NotAllowed, match="nobody approved the login in time"):
        run("login", api.url)
    assert not login_file().exists()


def test_a_terminal_goes_on_while_the_controller_is_away(
    api: Api, visit: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    visit("approve")
    failures = [Unavailable("it starts again")] * 3
    token = LoginClient.token

    def sometimes(client: LoginClient, code: str) -> LoginReply:
        if failures:
            raise failures.pop()
        return token(client, code)

    monkeypatch.setattr(LoginClient, "token", sometimes)
    assert f"logged in as {ADA}" in castor("login", api.url)


def test_a_controller_without_a_provider_is_said_to_have_none(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.log_in_through(None)
    with pytest.raises(NotFound, match=r"no identity provider .*castor invite"):
        run("login", api.url)

    def refused(*_: object) -> None:
        raise NotAllowed("a token is needed")

    monkeypatch.setattr(LoginClient, "begin", refused)
    with pytest.raises(NotFound, match=f"{api.url} has no identity provider: .*castor invite"):
        run("login", api.url)


@pytest.mark.parametrize("url", ["", "http://castor.example", "castor.example", "ftp://a"])
def test_no_login_goes_over_a_network_in_the_clear(api: Api, url: str) -> None:
    with pytest.raises(SpecError, match="https://HOST:PORT"):
        run("login", url)


def test_a_browser_opens_where_there_is_a_display(
    api: Api, visit: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr("sys.platform", "linux")
    visit("approve")
    castor("login", api.url)
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    castor("login", api.url, "--no-browser")
    assert opened == []
    castor("login", api.url)
    assert len(opened) == 1 and opened[0].startswith(f"{api.url}/login?code=")
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")
    castor("login", api.url)
    assert len(opened) == 1


def test_variables_that_come_first_are_named(
    api: Api, visit: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    visit("approve")
    monkeypatch.setenv("CASTOR_TOKEN", "x")
    monkeypatch.setenv("CASTOR_URL", "https://other.example")
    result = run("login", api.url)
    assert result.exit_code == 0
    assert "castor: CASTOR_TOKEN is set and comes first" in result.stderr
    assert "castor: CASTOR_URL is set and comes first" in result.stderr


def test_a_file_that_can_not_be_written_leaves_no_token(
    api: Api, visit: Callable[[str | None], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    visit("approve")
    with pytest.raises(SpecError, match=r"XDG_CONFIG_HOME: .* can't be written"):
        run("login", api.url)
    tokens = api.client.tokens(ADA)
    assert [token.revoked_seconds is not None for token in tokens] == [True]


def test_a_logout_without_a_controller_says_that_the_token_lives(
    api: Api, visit: Callable[[str | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    visit("approve")
    castor("login", api.url)
    saved = saved_login()
    assert saved is not None

    def fail(*_: object) -> None:
        raise Unavailable("the disk is full")

    with monkeypatch.context() as away:
        away.setattr(PeopleAccess, "revoke", fail)
        with pytest.raises(Unavailable, match=f"castor token revoke {saved.name}"):
            run("logout")
    assert not login_file().exists()


def test_a_logout_after_the_token_has_ended_is_none_the_worse(
    api: Api, visit: Callable[[str | None], None]
) -> None:
    visit("approve")
    castor("login", api.url)
    api.client.remove_person(ADA)
    assert castor("logout") == f"logged out of {api.url}\n"


def test_a_person_is_added_for_logins(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASTOR_URL", api.url)
    monkeypatch.setenv("CASTOR_TOKEN", api.token)
    assert castor("people", "add", "eve@lab.example") == "eve@lab.example: submitter, team none\n"
    added = json.loads(
        castor("people", "add", "bob", "--role", "viewer", "--team", "nlp", "--json")
    )
    assert added == {"name": "bob", "role": "viewer", "team": "nlp"}
