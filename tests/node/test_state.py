from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import JobSpec
from autoscaler.domain.report import Failure
from autoscaler.node.script.setups import setup_key
from autoscaler.node.state import AgentState, Prepared, Start, load_state, save_state
from autoscaler.node.user_data import UserData, load_user_data, parse_user_data
from tests.node.controller import FakeController


@pytest.fixture
def state(tmp_path: Path) -> AgentState:
    controller = FakeController(JobSpec("job", ("true",)), tmp_path, {"KEY": "a secret value"})
    controller.close()
    return AgentState("lasting", 1.0, 600.0, 90.0, controller.assignment)


def test_a_state_comes_back_without_its_secrets(tmp_path: Path, state: AgentState) -> None:
    path = tmp_path / "agent.json"
    assert load_state(path) is None
    full = replace(
        state,
        prepared=Prepared("/python", 20_001, "image:1"),
        start=Start(2, 1, 17.5, 300, steps=7),
        failure=Failure("job-0", 1, 1, "it raised", "Error", 3, ("last", "line")),
    )
    save_state(path, full)
    assert "a secret value" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_state(path) == replace(full, assignment=replace(full.assignment, secrets={}))


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text("{}")
    with pytest.raises(SpecError):
        load_state(tmp_path / "agent.json")


def test_user_data_is_read(tmp_path: Path) -> None:
    text = '{"controller": "http://host:1", "join_token": "t", "instance": "job-0"}'
    (tmp_path / "user-data").write_text(text)
    assert load_user_data(tmp_path / "user-data") == UserData("http://host:1", "t", "job-0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"controller": "http://host:1", "instance": "i"}', "join_token"),
        ('{"controller": "host", "join_token": "t", "instance": "i"}', 'controller: "host" is no'),
        ("nonsense", "JSON"),
    ],
)
def test_what_is_wrong_with_user_data_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        parse_user_data(text)
    (tmp_path / "user-data").write_text(text)
    with pytest.raises(SpecError, match=str(tmp_path)):
        load_user_data(tmp_path / "user-data")


def test_user_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nothing: No such file"):
        load_user_data(tmp_path / "nothing")


@pytest.mark.parametrize(
    "change",
    [{"bundle": "b" * 64}, {"setup": ("make",)}, {"image": "i"}, {"environment": {"A": "2"}}],
)
def test_a_setup_is_shared_by_those_whose_content_is_the_same(change: dict[str, object]) -> None:
    spec = JobSpec("job", ("true",), bundle="a" * 64, setup=("make all",), environment={"A": "1"})
    assert setup_key(replace(spec, name="other", command=("false",))) == setup_key(spec)
    assert setup_key(replace(spec, **change)) != setup_key(spec)  # type: ignore[arg-type]
