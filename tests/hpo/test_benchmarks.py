"""Benchmarks of studies run here with few trials, and print all parts of what they measure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.timeout(300)


def _run(name: str, *arguments: str) -> Any:
    command = [sys.executable, str(BENCHMARKS / name), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_trial_reports_times_both_directions() -> None:
    rows = _run("trial_reports.py", "--workers", "1", "--steps", "3", "--interval-seconds", "0")
    assert rows.keys() == {"whole", "told", "answered", "controller", "processor"}
    assert 0 < rows["told"]["p50"] <= rows["controller"]["p50"] < rows["whole"]["p99"]


def test_trial_starts_measures_a_turn_of_short_trials() -> None:
    row = _run("trial_starts.py", "--trials", "2", "--seconds", "0.1", "--imports", "json")
    (turn,) = row["turns"]
    assert 0 < turn["handed over"] < turn["whole turn"]
