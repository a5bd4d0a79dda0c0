"""Commands in the documents."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from autoscaler.cli.app import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands_in(document: Path, first: str) -> list[list[str]]:
    """The words of every line of a block, or in backticks, that begins with `first`."""
    text = re.sub(r" *\\\n *", " ", document.read_text())
    lines = re.findall(rf"^ *(?:CASTOR_DATA=\S+ )?({first}.*)$", text, re.MULTILINE)
    lines += re.findall(rf"`(?:CASTOR_DATA=\S+ )?({first}[^`]*)`", text)
    return [re.split(r"  +#|[.)]?$", line)[0].split() for line in lines]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_and_option_is_there(document: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for words in commands_in(document, "castor "):
        name, *rest = [word.strip("[],;:.()|") for word in words[1:]] or [""]
        if name not in commands:
            assert not re.fullmatch(r"[a-z]+", name), shlex.join(words)
            continue
        parts = [commands[name], *getattr(commands[name], "commands", {}).values()]
        known = {option for part in parts for each in part.params for option in each.opts}
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert used <= known, shlex.join(words)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_benchmark_and_option_is_there(document: Path) -> None:
    for words in commands_in(document, "python benchmarks/"):
        script = ROOT / words[1]
        assert script.is_file(), shlex.join(words)
        source = script.read_text()
        for option in (
            word.strip("[]") for word in words[2:] if word.strip("[]").startswith("--")
        ):
            name = option[2:].replace("-", "_")
            assert option in source or re.search(rf"\b{name}\b", source), shlex.join(words)
