"""Outputs of all commands that read: as JSON, without colours, and in narrow terminals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import CastorError
from autoscaler.domain.job import JobPhase
from autoscaler.wire.budget_messages import BudgetRequest
from tests.controller.world import World
from tests.service.conftest import TOKEN, Api, served
from tests.service.jobs.test_outlooks import SPEC, trains
from tests.service.studies.test_courses import searched

ROOT: Final = Path(__file__).parents[2]
SIMULATION: Final = ROOT / "examples" / "simulation"
RUNS, ENDED, FAILED = "job", "ended", "failed"
_OF_A_JOB: Final = ("status {}", "logs {}", "why {}", "spec {}", "curve {}", "history {}")
# Commands of which each prints a document with --json.
READ: Final = (
    *(command.format(job) for job in (RUNS, ENDED, FAILED) for command in _OF_A_JOB),
    *(f"costs {job}" for job in (RUNS, ENDED, FAILED)),
    *("status", "status --all", "queue", "top", "offers", "costs", "audit", "notifications"),
    *("people", "people list", "token list", "budget list", "programs", "study list"),
    *("what-if job", "set job max=2 --dry-run", f"offers --offers {SIMULATION}/offers.yaml"),
)
# Commands with --json that change something, or need what other tests give them.
OTHERS: Final = {
    *("submit", "stop", "resume", "drain", "freeze", "unfreeze", "reclaim", "invite", "fetch"),
    *("budget set", "people add", "people set", "token create", "token rotate", "notify test"),
    *("plan", "check", "buy", "reconcile", "study plan", "study status", "study why"),
    *("programs show", "simulate", "compare", "replay"),
}
WIDTHS: Final = (60, 80)


def commands_with_json(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of all commands with an option --json."""
    for name, below in getattr(command, "commands", {}).items():
        yield from commands_with_json(below, (*words, name))
    if any("--json" in parameter.opts for parameter in command.params):
        yield " ".join(words)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Yield an API with a job that runs, one that has ended and one that has failed."""
    directory = tmp_path_factory.mktemp("api")
    world = World(directory)
    with served(world, directory) as api:
        for name, phase in ((ENDED, JobPhase.STOPPED), (FAILED, JobPhase.FAILED)):
            api.client.submit(replace(SPEC, name=name))
            world.store.jobs.set_phase(name, phase, world.clock.now(), "exit code 1")
        searched(api)
        trains(api)
        api.client.set_budget("fleet", BudgetRequest(hourly_usd=Decimal(20)))
        yield api


@pytest.fixture
def castor(api: Api, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that runs a command without colours, and returns its output."""
    monkeypatch.setenv("CASTOR_URL", api.url)
    monkeypatch.setenv("CASTOR_TOKEN", TOKEN)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: str, columns: int = 80) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        done = CliRunner().invoke(app, words)
        assert done.exception is None, (words, done.exception)
        return str(done.stdout)

    return run


def test_each_command_with_json_is_known_here() -> None:
    known = {" ".join(name) for name in _names()}
    assert known - OTHERS <= {read for read in known if any(_is_of(read, line) for line in READ)}
    assert known >= OTHERS


def _names() -> Iterator[tuple[str, ...]]:
    yield from (tuple(name.split()) for name in commands_with_json(typer.main.get_command(app)))


def _is_of(command: str, line: str) -> bool:
    return f"{line} ".startswith(f"{command} ")


@pytest.mark.parametrize("line", READ)
def test_json_is_a_document(castor: Callable[..., str], line: str) -> None:
    told = castor(*line.split(), "--json")
    if line.startswith("logs"):
        assert all(json.loads(part) for part in told.splitlines())
        return
    document = json.loads(told)
    items = document if isinstance(document, list) else [document]
    for item in items:
        assert all(name == name.lower() and name.isidentifier() for name in item)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("line", READ)
def test_no_table_is_cut_off(castor: Callable[..., str], line: str, columns: int) -> None:
    told = castor(*line.split(), columns=columns)
    assert "\x1b" not in told and "…" not in told, told
    is_prose = line.split()[0] in ("logs", "why", "spec")
    assert is_prose or max(map(len, told.splitlines()), default=0) <= max(columns, 80), told


@pytest.mark.parametrize("job", [RUNS, ENDED, FAILED])
def test_a_narrow_view_of_jobs_has_whole_names(castor: Callable[..., str], job: str) -> None:
    assert job in castor("status", "--all", columns=60).split()


def test_an_error_leaves_standard_output_empty(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASTOR_URL", api.url)
    monkeypatch.setenv("CASTOR_TOKEN", TOKEN)
    for words in (("what-if", ENDED), ("status", "nobody"), ("notify", "test")):
        done = CliRunner().invoke(app, [*words, "--json"])
        assert isinstance(done.exception, CastorError) and done.stdout == ""
