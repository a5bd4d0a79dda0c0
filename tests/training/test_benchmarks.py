"""Benchmarks of the training library run here, and measure or check what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.training_overhead import check_ratios

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def _run(name: str, *arguments: str) -> tuple[int, Any]:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def _blocks(*step_seconds: float) -> list[dict[str, float]]:
    return [
        {"is_checked": place % 4 in (0, 3), "step_seconds": seconds}
        for place, seconds in enumerate(step_seconds)
    ]


def test_the_ratio_of_the_check_is_taken_of_four_blocks_after_warming_up() -> None:
    warm_up = (9.0, 1.0, 1.0, 9.0)
    drift = [seconds + 0.1 * place for place, seconds in enumerate((1.2, 1.0, 1.0, 1.2))]
    assert check_ratios(_blocks(*warm_up)) == []
    assert check_ratios(_blocks(*warm_up, *drift, 5.0)) == [pytest.approx(1.35 / 1.15)]


@pytest.mark.slow
def test_the_check_is_measured_at_each_length_of_step() -> None:
    status, rows = _run(
        *("training_overhead.py", "--check", "--json"),
        *("--seconds", "0", "--rounds", "1", "--block-steps", "2"),
    )
    assert status == 0
    assert [row["length_ms"] for row in rows] == [10, 50, 150]
    assert all(row["ratio"] > 0 and row["fours"] == 1 for row in rows)


def test_a_scaler_skips_the_step_with_an_infinite_gradient_in_a_process_group() -> None:
    """On a machine with a GPU the script does the same there with NCCL."""
    status, found = _run("gpu_scaler.py", "--device", "cpu", "--epochs", "3")
    assert (status, found["result"]) == (0, "passed"), found
    assert found["backend"] == "gloo" and found["skipped_steps"] == 1
    assert found["steps"] == 24


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["quorum", "restart"])
def test_instances_join_and_are_lost_in_the_check_for_gpus(engine: str) -> None:
    """On a machine with GPUs the script does the same there with NCCL."""
    status, found = _run("gpu_instances.py", "--device", "cpu", "--ranks", "2", "--engine", engine)
    assert (status, found["result"]) == (0, "passed"), found
    assert found["ranks"] == 6
