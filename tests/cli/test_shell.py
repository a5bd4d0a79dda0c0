"""Manners of the command line: help, versions, suggestions, colours, completion."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from autoscaler.cli import completion
from autoscaler.cli.app import app
from autoscaler.cli.examples import EXAMPLES
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import SpecError
from autoscaler.wire.client import Client
from tests.cli.access.inline import run
from tests.controller.world import World
from tests.service.conftest import Api, served


def every_command() -> list[list[str]]:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    words = [[]] + [[name] for name in commands]
    for name, command in commands.items():
        words += [[name, nested] for nested in getattr(command, "commands", {})]
    return words


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_each_command_has_help(option: str) -> None:
    for words in every_command():
        result = CliRunner().invoke(app, [*words, option])
        assert result.exit_code == 0, words
        assert result.stdout.startswith("Usage: "), words


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words and the command of each command without sub-commands."""
    for name, below in getattr(command, "commands", {}).items():
        yield from leaves(below, (*words, name))
    if not getattr(command, "commands", None) and not command.hidden:
        yield words, command


@pytest.mark.parametrize("columns", [80, 100])
def test_no_help_cuts_words_off(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in every_command():
        told = CliRunner().invoke(app, [*words, "--help"], prog_name="castor").stdout
        for line in told.splitlines():
            is_cut = line.endswith("...") and not line.startswith("Usage: ")
            assert not is_cut, (words, line)
            assert len(line) <= columns, (words, line)


def test_commands_with_several_options_have_an_example_that_can_be_read() -> None:
    for words, command in leaves(get_command(app)):
        options = [one for one in command.params if one.param_type_name == "option"]
        example = EXAMPLES.get(" ".join(words))
        rest = [one for one in options if one.name != "as_json"]
        assert example is not None or len(rest) <= 2, f"{words}: add an example"
        if example is not None:
            first, *named = shlex.split(example)
            assert (first, *named[: len(words)]) == ("castor", *words)
            command.make_context("castor", named[len(words) :])
            told = CliRunner().invoke(app, [*words, "-h"]).stdout
            assert f"Example: {example}" in " ".join(told.split())
    assert EXAMPLES.keys() <= {" ".join(words) for words, _ in leaves(get_command(app))}


def test_each_number_has_a_unit_in_its_help() -> None:
    units = r"[Ss]econds|hours|days|\$|US dollars|[Nn]umber|[Mm]ost|TAIL lines|steps?"
    units += r"|seed|[Pp]ort|Fraction|deviation|Rate|Runs|additional"
    for words, command in leaves(get_command(app)):
        for parameter in command.params:
            is_number = parameter.type_descriptor.annotation in (int, float)
            if is_number and not getattr(parameter, "hidden", False):
                assert re.search(units, parameter.help or ""), (words, parameter.name)


def test_the_version() -> None:
    assert run("--version").stdout == "castor 0.1.0\n"


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["submitt", "job.yaml"], "'submit'"),
        (["people", "ad", "ada"], "'add'"),
        (["status", "--wach"], "--watch"),
        (["drain", "--al"], "--all"),
    ],
)
def test_a_wrong_word_gets_the_nearest_one(words: list[str], suggestion: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert suggestion in result.stderr


def test_a_wrong_key_gets_the_nearest_one() -> None:
    from autoscaler.cli.submit.changes import parse_changes
    from autoscaler.domain.job import InstanceBounds

    with pytest.raises(SpecError, match='did you mean "objective"'):
        parse_changes(["objectiv=fastest"], InstanceBounds(), 0.0)


@pytest.fixture
def api(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    with served(World(tmp_path, template=template), tmp_path) as api:
        monkeypatch.setenv("CASTOR_URL", api.url)
        monkeypatch.setenv("CASTOR_TOKEN", api.token)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield api


def test_colours_obey_the_environment_and_the_option(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.world.submit("digits")
    yellow = "\x1b[33m"
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b[" not in run("status").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert yellow in run("status").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert yellow not in run("status").stdout
    monkeypatch.setenv("NO_COLOR", "")
    assert yellow in run("status").stdout
    assert "\x1b[" not in run("--no-color", "status").stdout


def completed(line: str) -> list[str]:
    """Return what Bash gets for the last word of a line."""
    words = line.split(" ")
    variables = {
        "_CASTOR_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return CliRunner().invoke(app, [], prog_name="castor", env=variables).stdout.split()


def test_a_shell_completes_commands_options_and_names_of_jobs(api: Api) -> None:
    api.world.submit("digits")
    api.world.submit("words")
    assert completed("castor sta") == ["status"]
    assert "--watch" in completed("castor status --")
    assert completed("castor stop d") == ["digits"]
    assert completed("castor status ") == ["words", "digits"]


def test_completion_needs_no_controller_and_asks_it_rarely(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.world.submit("digits")
    calls: list[None] = []
    jobs = Client.jobs

    def counted(client: Client, include_ended: bool = True):  # type: ignore[no-untyped-def]
        calls.append(None)
        return jobs(client, include_ended)

    monkeypatch.setattr(Client, "jobs", counted)
    assert completion.job_names("") == completion.job_names("") == ["digits"]
    assert len(calls) == 1
    saved = json.loads(completion.cache_file().read_text())
    assert saved["names"] == ["digits"]
    assert completion.cache_file().stat().st_mode & 0o077 == 0
    later = SystemClock().now() + 100.0
    monkeypatch.setattr(SystemClock, "now", lambda _: later)
    monkeypatch.setattr(Client, "jobs", lambda *_: 1 / 0)  # it does not answer
    assert completion.job_names("") == ["digits"]
    monkeypatch.setenv("CASTOR_URL", "http://127.0.0.1:1")
    assert completion.job_names("") == []
    completion.cache_file().write_text("{")
    assert completion.job_names("") == []


def test_nothing_answers_in_an_empty_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CASTOR_URL", "CASTOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "none"))
    assert completion.job_names("") == []
