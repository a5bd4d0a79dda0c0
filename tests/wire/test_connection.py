"""Address of the controller: of the variables, or of a state directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoscaler.domain.errors import NotAllowed, Unavailable
from autoscaler.state_directory import let_owner_in
from autoscaler.wire.connection import (
    Address,
    SavedLogin,
    address_and_token,
    is_private,
    login_file,
    saved_login,
)

LOCAL_URL, REMOTE_URL = "http://127.0.0.1:8470", "https://castor.example"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Variables of a remote controller, and the state directory of a local one."""
    monkeypatch.setenv("CASTOR_URL", REMOTE_URL)
    monkeypatch.setenv("CASTOR_TOKEN", "remote")
    monkeypatch.setenv("CASTOR_CA", "remote.pem")
    return tmp_path


def test_the_controller_of_a_state_directory_is_no_other_one(state: Path) -> None:
    token = let_owner_in(state, LOCAL_URL)
    assert address_and_token(state) == Address(LOCAL_URL, token, None)
    let_owner_in(state, LOCAL_URL, state / "cert.pem")
    assert address_and_token(state).authority == state / "cert.pem"


def test_without_a_state_directory_the_variables_come_first(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASTOR_STATE", str(state))
    token = let_owner_in(state, LOCAL_URL, state / "cert.pem")
    assert address_and_token() == Address(REMOTE_URL, "remote", Path("remote.pem"))
    for variable in ("CASTOR_URL", "CASTOR_TOKEN", "CASTOR_CA"):
        monkeypatch.delenv(variable)
    assert address_and_token() == Address(LOCAL_URL, token, state / "cert.pem")


LOGIN = SavedLogin("https://lab.example:8470", "ada", "login-x", "saved", "/etc/lab.pem")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home directory of a person who is logged in, with a local controller and no variables."""
    for variable in ("CASTOR_URL", "CASTOR_TOKEN", "CASTOR_CA", "CASTOR_STATE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".castor").mkdir()
    let_owner_in(tmp_path / ".castor", LOCAL_URL)
    save(LOGIN)
    return tmp_path


def save(login: SavedLogin) -> None:
    login_file().parent.mkdir(parents=True, exist_ok=True)
    login_file().write_text(json.dumps(login._asdict()))


def test_a_login_comes_before_the_controller_of_the_home_directory(home: Path) -> None:
    authority = Path("/etc/lab.pem")
    assert address_and_token() == Address(LOGIN.url, "saved", authority)
    login_file().unlink()
    assert address_and_token().url == LOCAL_URL
    save(LOGIN)
    assert address_and_token(home / ".castor").url == LOCAL_URL, "this one is meant"


def test_variables_come_before_a_login(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as set_one:
        set_one.setenv("CASTOR_STATE", str(home / ".castor"))
        assert address_and_token().url == LOCAL_URL
    with monkeypatch.context() as set_one:
        set_one.setenv("CASTOR_TOKEN", "given")
        assert address_and_token() == Address(LOCAL_URL, "given", None)
    with monkeypatch.context() as set_one:
        set_one.setenv("CASTOR_CA", "other.pem")
        assert address_and_token() == Address(LOGIN.url, "saved", Path("other.pem"))


def test_the_token_of_a_login_is_sent_to_its_own_controllers_only(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(LOGIN._replace(url="https://a.example,https://b.example/"))
    for url in ("https://a.example", "https://b.example , https://a.example/"):
        monkeypatch.setenv("CASTOR_URL", url)
        assert address_and_token().token == "saved"
    for url in (
        "https://evil.example",
        "https://a.example,https://evil.example",
        "http://a.example",
        "https://a.example:8470",
        "https://a.example@evil.example",
    ):
        monkeypatch.setenv("CASTOR_URL", url)
        assert address_and_token().token != "saved", url


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": 1}', "\0", '{"url": "a", "x": "y"}'])
def test_a_file_that_is_no_login_is_named(home: Path, text: str) -> None:
    login_file().write_text(text)
    with pytest.raises(NotAllowed, match=r"login\.json: .*run castor login again"):
        address_and_token()


def test_fields_of_a_login_are_texts(home: Path) -> None:
    login_file().write_text(json.dumps({**LOGIN._asdict(), "token": 5}))
    with pytest.raises(NotAllowed):
        saved_login()


def test_without_any_the_ways_to_a_controller_are_named(home: Path) -> None:
    login_file().unlink()
    (home / ".castor" / "client.json").unlink()
    with pytest.raises(Unavailable, match="castor login URL"):
        address_and_token()


def test_a_url_is_private_by_https_or_on_this_machine() -> None:
    for url in ("https://a.example", "http://127.0.0.1:1", "http://localhost", "http://[::1]:1"):
        assert is_private(url)
    for no_url in (
        *("http://a.example", "ftp://127.0.0.1", "https://", "https://[bad", "", None, 5),
        *("http://127.0.0.1@a.example", "http://127.0.0.1.a.example", "javascript:alert(1)"),
    ):
        assert not is_private(no_url), no_url
