"""`castor adopt`: the id of a controller whose state was lost, for a new one."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.state_directory import hold_state
from autoscaler.store.opening import open_store
from tests.conformance.store_examples import spec

LOST = "5f0d3c1e-5a0f-4c5e-9b8e-2f6b6a1d7c55"


def id_in(state: Path) -> str:
    store = open_store(f"sqlite:///{state / 'castor.db'}")
    try:
        return store.settings.controller_id()
    finally:
        store.close()


@pytest.mark.parametrize("was_started", [False, True])
def test_a_new_controller_has_the_id_of_the_lost_one(tmp_path: Path, was_started: bool) -> None:
    state = tmp_path / "state"
    state.mkdir()
    if was_started:
        assert id_in(state) != LOST
    told = CliRunner().invoke(app, ["adopt", LOST, "--state", str(state)])
    assert told.exit_code == 0, told.output
    assert told.output == (
        f"this controller is {LOST} now: castor serve ends what its cloud lists of it\n"
    )
    assert id_in(state) == LOST


def test_one_that_has_jobs_keeps_its_own(tmp_path: Path) -> None:
    before = id_in(tmp_path)
    store = open_store(f"sqlite:///{tmp_path / 'castor.db'}")
    store.jobs.add(spec(), 0.0)
    store.close()
    told = CliRunner().invoke(app, ["adopt", LOST, "--state", str(tmp_path)])
    assert isinstance(told.exception, SpecError)
    assert "name the state directory of a new one" in str(told.exception)
    assert id_in(tmp_path) == before


def test_one_that_runs_keeps_its_own(tmp_path: Path) -> None:
    with hold_state(tmp_path):
        told = CliRunner().invoke(app, ["adopt", LOST, "--state", str(tmp_path)])
    assert isinstance(told.exception, Conflict)


@pytest.mark.parametrize("word", ["bad id!", "castor-1", LOST[:-1]])
def test_what_is_no_id_is_refused_and_makes_nothing(tmp_path: Path, word: str) -> None:
    told = CliRunner().invoke(app, ["adopt", word, "--state", str(tmp_path)])
    assert isinstance(told.exception, SpecError)
    assert "see the tag castor:controller" in str(told.exception)
    told = CliRunner().invoke(app, ["adopt", LOST, "--state", str(tmp_path / "none")])
    assert isinstance(told.exception, SpecError) and "does not exist" in str(told.exception)
    assert list(tmp_path.iterdir()) == []
