"""The first commands of the README, as they stand there, against a new controller."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoscaler.spec.job_file import load_job
from tests.builders.waiting import wait_until

ROOT = Path(__file__).parents[2]
READY = "listening on"


def first_commands() -> list[list[str]]:
    """Return the words of each `castor` line of the README's section "First commands"."""
    section = (ROOT / "README.md").read_text().partition("## First commands")[2]
    block = section.partition("```\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True) for line in re.findall("^castor .*$", block, re.M)]


def castor(*words: str) -> list[str]:
    return [sys.executable, "-m", "autoscaler.cli.app", *words]


@contextmanager
def controller(environment: dict[str, str], log: Path, *options: str) -> Iterator[None]:
    """Run `castor serve` on a free port until the block ends; it logs to a file."""
    command = castor("serve", "--port", "0", *options)
    with log.open("w") as errors:
        process = subprocess.Popen(command, stderr=errors, env=environment)
    try:
        wait_until(lambda: READY in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        drain = castor("drain", "--all", "-y")
        subprocess.run(drain, env=environment, capture_output=True, timeout=120)
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_the_first_commands_of_the_readme_work_on_a_new_controller(tmp_path: Path) -> None:
    environment = os.environ | {"CASTOR_STATE": str(tmp_path / "state"), "COLUMNS": "400"}
    environment.pop("CASTOR_URL", None)
    serve, *others = first_commands()
    assert serve == ["castor", "serve"]
    assert [words[1] for words in others][:3] == ["plan", "submit", "status"]
    with controller(environment, tmp_path / "controller.log"):
        for words in others:
            ended = subprocess.run(
                castor(*words[1:]), cwd=ROOT, env=environment, capture_output=True, text=True
            )
            assert ended.returncode == 0, f"{shlex.join(words)}: {ended.stderr}"
            if words[1] == "plan":
                assert "first decision: start digits on" in ended.stdout
                assert "Set total_progress in the job file" in ended.stdout


@pytest.mark.parametrize("document", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))])
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if not (document.parent / link).exists()]
    assert missing == []


def test_the_readme_names_only_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.M)) <= targets


def test_the_job_file_of_the_readme_can_be_used(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    (tmp_path / "job.yaml").write_text(text)
    assert load_job(tmp_path / "job.yaml", 0.0).spec.name == "chargpt"
