"""Tutorials of docs/ as they stand there: their files, and commands against a controller."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from autoscaler.spec.job_file import load_job
from tests.cli.test_first_commands import castor, controller

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Commands that a test can't run as they stand: they install, or run until they are ended.
LEFT_OUT = ("castor serve", "castor demo", "pip ")
# Keys of job files. Study files have these, too; documents also have YAML of other tools.
OF_JOBS = {"name", "command"}
OF_STUDIES = {"space", "trials"}


@dataclass(frozen=True)
class Block:
    """Block of code of a document: its language and its text."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """Name of the file that the first line gives the block; None if it gives none."""
        name = re.match(r"# (\S+\.(?:py|yaml))$", self.text.partition("\n")[0])
        return None if name is None else name[1]


def blocks(document: Path) -> list[Block]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", document.read_text(), re.M | re.S)
    return [Block(language, text) for language, text in found]


def commands(document: Path) -> list[list[str]]:
    """Return the words of each command in a document's blocks without a language."""
    lines = [
        line
        for block in blocks(document)
        if not block.language
        for line in block.text.splitlines()
        if line.strip() and not line.startswith(LEFT_OUT)
    ]
    return [shlex.split(line, comments=True) for line in lines]


def job_files() -> Iterator[tuple[str, str]]:
    """Yield document and text of each block that is a job file."""
    for document in DOCUMENTS:
        for block in blocks(document):
            if block.language == "yaml":
                content = yaml.safe_load(block.text)
                keys = set(content) if isinstance(content, dict) else set()
                if keys >= OF_JOBS and not keys & OF_STUDIES:
                    yield document.name, block.text


@pytest.mark.parametrize(("document", "text"), list(job_files()))
def test_every_job_file_of_a_document_can_be_read(
    tmp_path: Path, document: str, text: str
) -> None:
    (tmp_path / "job.yaml").write_text(text)
    assert load_job(tmp_path / "job.yaml", 0.0).spec.command


def test_job_files_of_many_documents_are_read() -> None:
    documents = {document for document, _ in job_files()}
    assert {"README.md", "start.md", "from-slurm.md", "job-file.md"} <= documents


def run_all(document: Path, directory: Path) -> dict[str, str]:
    """Write the files of a tutorial, run its commands, and return their outputs.

    The `python` of a tutorial is that of the tests.
    """
    for block in blocks(document):
        if block.file is not None:
            (directory / block.file).write_text(block.text)
    environment = os.environ | {
        "CASTOR_STATE": str(directory.with_name("state")),
        "COLUMNS": "200",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    environment.pop("CASTOR_URL", None)
    outputs = {}
    with controller(environment, directory.with_name("controller.log"), "--boot-seconds", "0.1"):
        for words in commands(document):
            command = castor(*words[1:]) if words[0] == "castor" else words
            completed = subprocess.run(
                command, cwd=directory, env=environment, capture_output=True, text=True
            )
            assert completed.returncode == 0, f"{shlex.join(words)}: {completed.stderr}"
            outputs[" ".join(words[:2])] = completed.stdout + completed.stderr
    return outputs


@pytest.mark.timeout(600)
def test_the_first_page_leads_to_a_job_and_a_study(tmp_path: Path) -> None:
    outputs = run_all(ROOT / "docs" / "start.md", tmp_path)
    assert "first decision: start line on" in outputs["castor plan"]
    assert "start line on 1 x" in outputs["castor why"]
    assert (tmp_path / "results" / "model.pt").is_file()
    assert "line" in outputs["castor costs"]
    assert "best: {'x':" in outputs["python study.py"]


@pytest.mark.timeout(600)
def test_a_script_of_torchrun_runs_unchanged(tmp_path: Path) -> None:
    outputs = run_all(ROOT / "docs" / "from-torchrun.md", tmp_path)
    assert "first decision: start plain-ddp on" in outputs["castor plan"]
    assert "step 2000 of 2000" in outputs["castor logs"]
