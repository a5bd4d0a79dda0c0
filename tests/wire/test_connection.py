"""Address of the controller: of the variables, or of a state directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.state_directory import let_owner_in
from autoscaler.wire.connection import Address, address_and_token

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
