"""`castor programs`, over a controller that remembers two."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.programs.tables import program_detail, programs_table
from autoscaler.domain.errors import NotFound
from autoscaler.domain.goodput import NoiseCurve
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation
from autoscaler.wire import connection
from tests.conformance.store_programs import memory

DIGITS = replace(
    memory("digits"),
    observations=(
        StepObservation("T4", 1, 4, 64, 0, 0.25, 0.01, 100),
        StepObservation("T4", 1, 4, 64, 1, 0.5, 0.01, 100),
        StepObservation("A100", 2, 8, 64, 0, 0.1, 0.01, 100),
    ),
    noise=NoiseCurve(
        tuple(float(at) for at in range(1, 101)), tuple(10.0 * at for at in range(1, 101))
    ),
)
BARE = replace(memory("words"), noise=None, observations=(), start_seconds={}, jobs=1)


@dataclass
class Remembering:
    """The client of a controller, as far as programs go."""

    memories: dict[str, ProgramMemory] = field(default_factory=dict)

    def programs(self) -> tuple[ProgramMemory, ...]:
        return tuple(self.memories.values())

    def program(self, name: str) -> ProgramMemory:
        return self.memories[name]

    def forget_program(self, name: str) -> None:
        if self.memories.pop(name, None) is None:
            raise NotFound(name)


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Remembering:
    found = Remembering({"digits": DIGITS, "words": BARE})
    monkeypatch.setattr(connection, "connect", lambda: found)
    return found


def castor(*words: str) -> str:
    done = CliRunner().invoke(app, ["programs", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def printed(view: RenderableType) -> list[str]:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(view)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_programs_are_listed_with_what_they_were_measured_on() -> None:
    _, digits, words = printed(programs_table([DIGITS, BARE]))
    assert digits.startswith("digits 2 A100 x 8, T4 x 4 yes 20")
    assert words.startswith("words 1 - no 20")


def test_a_program_is_shown_with_its_step_times_curve_and_starts() -> None:
    lines = printed(program_detail(DIGITS))
    assert lines[0] == "digits: measured by 2 jobs, the last digits-2"
    assert "4 x T4 1 64 to 128 0.25 to 0.5 s" in lines
    assert "8 x A100 2 64 0.1 s" in lines
    curve = lines.index("useful examples noise scale")
    assert (lines[curve + 1], lines[curve + 8]) == ("1 10", "100 1,000")
    assert "local-small 12s" in lines
    assert len(printed(program_detail(BARE))) == 3


def test_scripts_get_json(controller: Remembering) -> None:
    assert [each["program"] for each in json.loads(castor("--json"))] == ["digits", "words"]
    assert json.loads(castor("show", "digits", "--json"))["jobs"] == 2


def test_what_is_forgotten_is_not_listed(controller: Remembering) -> None:
    assert castor("forget", "digits") == "digits: forgotten\n"
    assert "digits" not in castor()
    castor("forget", "words")
    assert castor().startswith("no program has measurements yet")
