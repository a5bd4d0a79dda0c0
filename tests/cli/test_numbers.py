"""Numbers of the command line: each option refuses what is no number of its range, by its name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import CastorError

# Words that each command needs, so that the option at test is the only thing that is wrong.
NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "buy": ("pools.json", "--type", "p5.48xlarge"),
    "compare": ("--policies", "marginal"),
    "history": ("job",),
    "logs": ("job",),
    "replay": ("--policy", "marginal"),
    "study plan": ("study.yaml",),
    "study run": ("study.yaml",),
    "study why": ("study.yaml", "0"),
    "what-if": ("job",),
    "why": ("job",),
}
# Options whose value is a text that is read as a number, and the words beside them.
TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "budget set --month": ("fleet",),
    "budget set --total": ("fleet",),
    "budget set --hourly": ("fleet",),
    "what-if --budget": ("job",),
    "what-if --value-of-time": ("job",),
    "what-if --deadline": ("job",),
    "history --since": ("job",),
    "audit --since": (),
    "invite --expires": ("ada",),
    "token create --expires": ("ci",),
    "token rotate --grace": ("ci",),
    "serve --fleet-usd": (),
    "serve --job-usd": (),
    "serve --study-usd": (),
    "serve --lease": (),
    "serve --keep": (),
    "serve --job-logs": (),
}


def numbers(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each number that the command line takes, with the name of its command."""
    for name, below in getattr(command, "commands", {}).items():
        yield from numbers(below, (*words, name))
    for parameter in command.params:
        annotation = parameter.type_descriptor.annotation
        if annotation in (int, float):
            yield " ".join(words), parameter


NUMBERS: Final = tuple(numbers(typer.main.get_command(app)))


def hostile(parameter: Any) -> Iterator[str]:
    """Yield values that no parameter of this type and range takes."""
    yield from ("x", "", "nan", "inf", "-inf")
    if parameter.type_descriptor.annotation is int:
        yield "1.5"
    least = 0.0 if parameter.min is None else parameter.min
    yield str(math.ceil(least) - 1)
    if parameter.max is not None:
        yield str(math.floor(parameter.max) + 1)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find no controller and no file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CASTOR_URL", raising=False)

    def run(*_: object) -> None:
        raise AssertionError("the command would run")

    for place in ("autoscaler.main.serve", "autoscaler.cli.demo.scenario.run_demo"):
        monkeypatch.setattr(place, run)


def refusal(words: list[str]) -> str:
    """Return the error of a command, which must not succeed."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0, done.output
    assert done.exception is None or isinstance(done.exception, (CastorError, SystemExit)), words
    is_told = isinstance(done.exception, CastorError)
    return str(done.exception) if is_told else done.output


@pytest.mark.parametrize(
    ("command", "parameter"), NUMBERS, ids=[f"{name} {one.name}" for name, one in NUMBERS]
)
def test_a_number_out_of_its_range_is_refused_by_its_option(command: str, parameter: Any) -> None:
    option = parameter.opts[-1] if parameter.param_type_name == "option" else parameter.name
    for value in hostile(parameter):
        words = [*command.split(), *NEEDED.get(command, ())]
        if parameter.param_type_name == "option":
            words += [f"{option}={value}" if option.startswith("--") else f"{option}{value}"]
        else:
            words[-1:] = ["--", value]
        assert option in refusal(words).lower() or option.upper() in refusal(words), value


@pytest.mark.parametrize("option", TEXTS)
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x", "1e400", "9" * 40])
def test_an_amount_that_is_none_is_refused_by_its_option(option: str, value: str) -> None:
    *command, name = option.split()
    assert name in refusal([*command, *TEXTS[option], f"{name}={value}"]), value
