"""The script that docs/training.md ports, before and after; and the page, which must be whole."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from autoscaler.training import TrainingSession, session

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "ported"
PAGE = (ROOT / "docs" / "training.md").read_text()


def _accuracies(script: str, directory: Path) -> list[float]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / script), "--epochs", "3"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(value) for value in re.findall(r"accuracy (\S+)", run.stdout)]


def test_the_ported_script_trains_as_well_as_the_plain_one(tmp_path: Path) -> None:
    reached = {}
    for script in ("plain.py", "elastic.py"):
        directory = tmp_path / script
        directory.mkdir()
        reached[script] = _accuracies(script, directory)
        assert (directory / "best.pt").exists()
    plain, elastic = reached["plain.py"], reached["elastic.py"]
    assert len(plain) == len(elastic) == 3
    assert min(plain[-1], elastic[-1]) > 0.9
    assert elastic[-1] == pytest.approx(plain[-1], abs=0.03)


def test_the_page_shows_the_scripts_as_they_are() -> None:
    page = PAGE.partition("## Arguments")[0]
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    sources = [(EXAMPLES / name).read_text() for name in ("plain.py", "elastic.py")]
    for block, source in zip(blocks, sources, strict=True):
        lines = {line.strip() for line in source.splitlines()}
        missing = [line for line in block.splitlines() if line.strip() not in lines]
        assert not missing
        assert textwrap.dedent(block) == block


def test_the_page_names_every_argument_of_session() -> None:
    for name in inspect.signature(session).parameters:
        assert f"`{name}`" in PAGE, name


def test_the_page_names_all_that_a_job_has() -> None:
    internal = {"finish", "has_last_word"}
    for name, _ in inspect.getmembers(TrainingSession):
        if not name.startswith("_") and name not in internal:
            assert f"`job.{name}" in PAGE, name
    assert "`job.model`" in PAGE
