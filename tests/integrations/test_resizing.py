"""Trainings by other libraries give at a changing size, and after kills, what plain ones give."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.domain.training import TrainingDirective
from tests.builders.waiting import wait_until
from tests.nursery import Order, nursery
from tests.training.fleet import Fleet, imported

SCRIPTS = Path(__file__).parent / "scripts"
MODULES = {
    "fine_tuning.py": ("transformers", "transformers.trainer", "accelerate"),
    "lightning_fit.py": ("lightning", "lightning.pytorch"),
    "accelerated.py": ("accelerate",),
}
EPOCHS = "30"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    created = Fleet(tmp_path)
    yield created
    created.stop()


def plain(script: str, directory: Path) -> dict[str, Any]:
    """Return the result of the script without Castor, by the library alone."""
    result = directory / "plain.json"
    environment = {
        "EPOCHS": EPOCHS,
        "RESULT": str(result),
        "HURRY": str(SCRIPTS),
        "OUTPUT": str(directory / "plain"),
        "OMP_NUM_THREADS": "1",
    }
    order = Order((str(SCRIPTS / script),), directory / "plain.log", {**os.environ, **environment})
    process = nursery(*imported(None), *MODULES[script]).start(order)
    assert process.wait(120) == 0, (directory / "plain.log").read_text()
    return json.loads(result.read_text())  # type: ignore[no-any-return]


def resized(script: str, fleet: Fleet, directory: Path) -> dict[str, Any]:
    """Return the result of the script on 1, 2, 1, 2 and 1 instances, the first one killed."""
    result, hurry = directory / "elastic.json", directory / "hurry"
    environment = {
        "ELASTIC": "1",
        "EPOCHS": EPOCHS,
        "RESULT": str(result),
        "HURRY": str(hurry),
        "OUTPUT": str(directory / "elastic"),
        "CASTOR_JOB": "job",
    }
    fleet.modules = MODULES[script]
    path = str(SCRIPTS / script)

    def log() -> str:
        return "\n".join(replica.log.read_text()[-3000:] for replica in fleet.replicas)

    def wait(condition: Any, description: str) -> None:
        try:
            wait_until(condition, description, seconds=120)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log()}") from None

    first = fleet.start(path, **environment)
    wait(lambda: first.step >= 3, "steps of the first")
    second = fleet.start(path, **environment)
    wait(lambda: second.step > 0, "the join of the second")
    first.kill()
    at = second.step
    wait(lambda: second.step > at + 2, "steps after the loss of the first")
    third = fleet.start(path, **environment)
    wait(lambda: third.step > 0, "the join of the third")
    second.direct(TrainingDirective(drain=True))
    assert second.wait(60) == 0, log()
    hurry.touch()
    assert third.wait(120) == 0, log()
    assert third.of_kind("finished"), log()
    return json.loads(result.read_text())  # type: ignore[no-any-return]


@pytest.mark.timeout(480)
def test_the_trainer_of_transformers_logs_the_same_losses(fleet: Fleet, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    expected = plain("fine_tuning.py", tmp_path)
    result = resized("fine_tuning.py", fleet, tmp_path)
    assert result["global_step"] == expected["global_step"]
    assert result["steps"][0] > 3, "the last instance has not begun anew"
    for name in ("loss", "eval_loss", "learning_rate", "grad_norm"):
        found, plain_run = (_logged(each["history"], name) for each in (result, expected))
        if name == "loss":
            _require_same_losses(found, plain_run)
        else:
            assert found == pytest.approx(plain_run, rel=1e-5), name
    assert result["best"] == pytest.approx(expected["best"], rel=1e-6)
    assert result["weights"] == pytest.approx(expected["weights"], rel=1e-6, abs=1e-6)
    assert (tmp_path / "elastic" / "final" / "model.safetensors").exists()
    kept = list((tmp_path / "elastic").glob("checkpoint-*"))
    assert len(kept) in (1, 2)


def _require_same_losses(found: dict[float, float], expected: dict[float, float]) -> None:
    """Check logged losses. Where an instance dies meanwhile, that of another alone is logged."""
    own = [step for step in found if found[step] != pytest.approx(expected[step], rel=1e-5)]
    assert len(own) <= 1
    assert found == pytest.approx(expected, rel=0.05)


def _logged(history: list[dict[str, float]], name: str) -> dict[float, float]:
    return {entry["step"]: entry[name] for entry in history if name in entry}


@pytest.mark.timeout(480)
def test_lightning_reaches_the_same_losses(fleet: Fleet, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    expected = plain("lightning_fit.py", tmp_path)
    result = resized("lightning_fit.py", fleet, tmp_path)
    assert result["steps"][0] > 3, "the last instance has not begun anew"
    assert {name: result[name] for name in ("global_step", "epoch")} == {
        name: expected[name] for name in ("global_step", "epoch")
    }
    assert result["losses"] == pytest.approx(expected["losses"], rel=1e-9)
    assert result["weights"] == pytest.approx(expected["weights"], rel=1e-9)
    assert result["best"] == pytest.approx(expected["best"], rel=1e-6)


@pytest.mark.timeout(480)
def test_accelerate_reaches_the_same_losses(fleet: Fleet, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    expected = plain("accelerated.py", tmp_path)
    result = resized("accelerated.py", fleet, tmp_path)
    assert 0 < result["steps"] < expected["steps"], "the last instance has not begun anew"
    assert result["losses"] == pytest.approx(expected["losses"], rel=1e-9)
    assert result["weights"] == pytest.approx(expected["weights"], rel=1e-9)
