"""Progress that is read from a command's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.domain.report import CheckpointStatus
from autoscaler.domain.report_rules import Refusals, sound_report
from autoscaler.domain.restart import progress_pattern
from autoscaler.node.restarts.log_progress import LineReader, LogProgress, RunSize

SIZE = RunSize("cpu", instances=2, devices=4, batch=64)


def progress_of(text: str = "examples {examples}") -> LogProgress:
    return LogProgress(progress_pattern(text), SIZE)


def test_lines_are_read_as_they_are_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    reader = LineReader(log, 5)
    assert reader.lines() == []
    log.write_bytes(b"past\nstep 1\nste")
    assert reader.lines() == ["step 1"]
    with log.open("ab") as file:
        file.write(b"p 2\rstep 3\n" + b"x" * 10_000 + b"\n")
    first, second, long = reader.lines()
    assert (first, second) == ("step 2", "step 3") and len(long) == 4096
    assert reader.lines() == []


def test_step_times_follow_from_progress() -> None:
    progress = progress_of()
    assert progress.add(["examples 640"], 100.0)
    assert progress.report(CheckpointStatus(), 100.0).observations == ()
    assert not progress.add(["examples 640", "loss 3"], 101.0), "another rank's line"
    assert progress.add(["examples 1280"], 105.0)
    report = progress.report(CheckpointStatus(), 105.0)
    (observation,) = report.observations
    assert observation.step_seconds == pytest.approx(5.0 / 10)
    assert (observation.device_batch, observation.steps) == (16, 10)
    assert (observation.instances, observation.devices) == (2, 4)
    assert report.progress_examples == 1280 and report.step == 20
    refusals = Refusals()
    assert sound_report(report, refusals) == report and refusals.texts == []


def test_steps_count_in_batches() -> None:
    progress = progress_of("step {step}")
    assert progress.add(["step 10"], 0.0)
    assert progress.examples == 640 and progress.steps == 10


def test_a_burst_of_lines_gives_no_step_time() -> None:
    progress = progress_of()
    assert progress.add(["examples 64"], 0.0)
    assert progress.add(["examples 128"], 0.5)
    assert progress.report(CheckpointStatus(), 0.5).observations == ()
    assert progress.add(["examples 192"], 4.0)
    (observation,) = progress.report(CheckpointStatus(), 4.0).observations
    assert observation.step_seconds == pytest.approx(2.0)
