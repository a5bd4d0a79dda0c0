"""Evaluations, predictions and saves of the integrations are declared as phases."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from autoscaler.integrations.phases import LONGEST_PHASE_SECONDS, DeclaredPhases
from autoscaler.training import TrainingSession

SCRIPTS = Path(__file__).parent / "scripts"


class Recorder:
    """Session that records its phases, and what happened within them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seconds: set[float] = set()

    @contextmanager
    def phase(self, name: str, seconds: float) -> Iterator[None]:
        """Record the begin and the end of a phase."""
        self.seconds.add(seconds)
        self.lines.append(f"begin {name}")
        try:
            yield
        finally:
            self.lines.append(f"end {name}")


def _job(recorder: Recorder) -> TrainingSession:
    return cast(TrainingSession, recorder)


def test_a_phase_may_contain_others() -> None:
    recorder, phases = Recorder(), DeclaredPhases(60)
    with phases.phase(_job(recorder), "evaluation"), phases.phase(_job(recorder), "saving"):
        pass
    assert recorder.lines == ["begin evaluation", "begin saving", "end saving", "end evaluation"]
    assert recorder.seconds == {60.0}


def test_phases_that_were_left_early_end() -> None:
    recorder, phases = Recorder(), DeclaredPhases()
    phases.begin(_job(recorder), "evaluation")
    phases.begin(_job(recorder), "saving")
    phases.end_all()
    assert recorder.lines[2:] == ["end saving", "end evaluation"]
    phases.end()
    with pytest.raises(OSError, match="full"), phases.phase(_job(recorder), "saving"):
        raise OSError("disk is full")
    assert recorder.lines[4:] == ["begin saving", "end saving"]


def test_nothing_is_declared_without_a_session() -> None:
    phases = DeclaredPhases()
    with phases.phase(None, "evaluation"), phases.phase(None, "saving"):
        pass


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "an hour"])
def test_a_longest_time_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="longest time"):
        DeclaredPhases(seconds)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """Record of the phases and steps of a script that trains elastically for two epochs."""
    recorder, step = Recorder(), TrainingSession.step

    def recorded_step(self: TrainingSession, *arguments: Any, **options: Any) -> Any:
        if recorder.lines[-1:] != ["steps"]:
            recorder.lines.append("steps")
        return step(self, *arguments, **options)

    monkeypatch.setattr(
        TrainingSession, "phase", lambda _, name, seconds: recorder.phase(name, seconds)
    )
    monkeypatch.setattr(TrainingSession, "step", recorded_step)
    monkeypatch.delenv("CASTOR_JOB", raising=False)
    for name, value in {"EPOCHS": "2", "HURRY": str(SCRIPTS), "ELASTIC": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RESULT", str(tmp_path / "result.json"))
    monkeypatch.setenv("OUTPUT", str(tmp_path / "output"))
    return recorder


_EVALUATION = ["begin evaluation", "end evaluation"]
_SAVING = ["begin saving", "end saving"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("library", "script", "after_epoch"),
    [
        ("lightning", "lightning_fit.py", _EVALUATION + _SAVING),
        ("transformers", "fine_tuning.py", _EVALUATION + _SAVING),
        ("accelerate", "accelerated.py", _EVALUATION),
    ],
)
def test_each_evaluation_of_a_training_is_a_phase(
    library: str, script: str, after_epoch: list[str], recorded: Recorder
) -> None:
    pytest.importorskip(library)
    runpy.run_path(str(SCRIPTS / script), run_name="__main__")
    assert recorded.lines == ["steps", *after_epoch, "steps", *after_epoch]
    assert recorded.seconds == {LONGEST_PHASE_SECONDS}


def test_a_pass_of_accelerate_that_is_left_early_ends_with_the_next_batch(
    recorded: Recorder,
) -> None:
    pytest.importorskip("accelerate")
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from autoscaler.integrations.accelerate import ElasticAccelerator

    accelerator = ElasticAccelerator(cpu=True, phase_seconds=7200)
    model: Any = torch.nn.Linear(2, 1)
    optimizer: Any = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(16, 2))
    model, optimizer, train = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8))
    test = accelerator.prepare(DataLoader(data, batch_size=8))
    kept = []
    for _ in accelerator.epochs(1):
        for (batch,) in train:
            accelerator.backward(model(batch).mean())
            passing = iter(test)
            next(passing)
            kept.append(passing)
    accelerator.end_training()
    assert recorded.lines == ["steps", *_EVALUATION, "steps", *_EVALUATION]
    assert recorded.seconds == {7200.0}
