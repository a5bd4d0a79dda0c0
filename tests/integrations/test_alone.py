"""Trainings on one rank, without Castor, are those of the library alone."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"


def results(script: str, directory: Path, patch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the results of the plain script and of the elastic one."""
    patch.delenv("CASTOR_JOB", raising=False)
    patch.setenv("EPOCHS", "4")
    patch.setenv("HURRY", str(SCRIPTS))
    found = []
    for is_elastic in ("0", "1"):
        result = directory / f"{is_elastic}.json"
        patch.setenv("ELASTIC", is_elastic)
        patch.setenv("RESULT", str(result))
        patch.setenv("OUTPUT", str(directory / is_elastic))
        runpy.run_path(str(SCRIPTS / script), run_name="__main__")
        found.append(json.loads(result.read_text()))
    return found


@pytest.mark.timeout(480)
@pytest.mark.parametrize(
    ("library", "script"), [("lightning", "lightning_fit.py"), ("accelerate", "accelerated.py")]
)
def test_values_are_bitwise_equal(
    library: str, script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    plain, elastic = results(script, tmp_path, monkeypatch)
    # Lightning's loop has a batch for each step of the session, and more where it accumulates.
    del plain["steps"], elastic["steps"]
    assert elastic == plain


@pytest.mark.timeout(480)
def test_the_trainer_of_transformers_logs_what_it_does_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    plain, elastic = results("fine_tuning.py", tmp_path, monkeypatch)
    assert elastic["steps"] == plain["steps"]
    assert elastic["weights"] == pytest.approx(plain["weights"], rel=1e-7, abs=1e-7)
    times = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"}
    for ours, theirs in zip(elastic["history"], plain["history"], strict=True):
        names = {name for name in theirs if name not in times and "eval_" not in name}
        names |= {"eval_loss"} & theirs.keys()
        assert {name: ours[name] for name in names} == pytest.approx(
            {name: theirs[name] for name in names}, rel=1e-6
        )
    written = {path.name for path in (tmp_path / "0").glob("checkpoint-*")}
    assert {path.name for path in (tmp_path / "1").glob("checkpoint-*")} == written
