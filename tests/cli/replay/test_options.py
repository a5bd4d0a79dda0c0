from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import SpecError
from autoscaler.store.sql.copying import sqlite_version
from tests.controller.world import World
from tests.store.frozen_stores import frozen_path


def replay(state: Path, *options: str) -> str:
    words = ["replay", "--policy", "static", "--state", str(state), *options]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"}, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_run_is_told_beside_what_another_policy_would_have_done(
    tmp_path: Path, template: Path
) -> None:
    world = World(tmp_path, template=template)
    world.set_target(world.submit(), 2)
    world.tick(6)
    world.store.close()
    told = replay(tmp_path, "--json", str(tmp_path / "out.json"))
    assert "grow: 2 x small" in told and "start: 1 x small" in told
    assert "would have diverged at the first difference" in told
    moments = json.loads((tmp_path / "out.json").read_text())["moments"]
    assert f"of {len(moments)} decisions are the same" in told
    assert moments[0]["decided"]["holding"] == "2 x small"


def test_a_state_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"--state: .*castor.db is missing"):
        replay(tmp_path)
    assert not (tmp_path / "castor.db").exists()


def test_a_store_of_an_earlier_version_is_replayed_and_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "castor.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(frozen_path("0013").read_text())
    replay(tmp_path)
    assert sqlite_version(path) == "0013"
    assert [file.name for file in tmp_path.iterdir()] == ["castor.db"]
