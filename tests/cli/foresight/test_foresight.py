"""Commands on predictions, against the API of a running job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.foresight.tables import predicted_money
from autoscaler.domain.errors import CastorError
from tests.controller.world import World
from tests.service.conftest import TOKEN, Api, served
from tests.service.jobs.test_outlooks import SPEC, trains
from tests.service.studies.test_courses import searched

Castor = Callable[..., str]


@pytest.fixture
def api(tmp_path: Path, template: Path) -> Iterator[Api]:
    with served(World(tmp_path, template=template), tmp_path) as api:
        yield api


@pytest.fixture
def castor(api: Api, monkeypatch: pytest.MonkeyPatch) -> Castor:
    """Function that runs a command, and returns its output or the text of its error."""
    monkeypatch.setenv("CASTOR_URL", api.url)
    monkeypatch.setenv("CASTOR_TOKEN", TOKEN)
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, words)
        return str(done.exception) if isinstance(done.exception, CastorError) else done.output

    return run


def test_the_curve_is_a_table_that_marks_what_is_held(api: Api, castor: Castor) -> None:
    trains(api)
    told = castor("curve", "job")
    assert re.search(r"1 x small +\d+ +\d+ to \d+ +\$[\d.]+/h +\$[\d.]+ +held", told), told
    assert "last decision:" in told and "best other" in told
    view = json.loads(castor("curve", "job", "--json"))
    assert view["held"]["allocation"]["instances"] == 1


def test_another_objective_is_shown_beside_the_present_one(api: Api, castor: Castor) -> None:
    trains(api)
    told = castor("what-if", "job", "--deadline", "10m", "--budget", "$3", "--max", "2")
    for words in ("present objective", "at most 2 instances", "finish in", "whole cost", "cases"):
        assert words in told, told
    assert re.search(r"\(9 in 10: [\dhms]+ to [\dhms]+\)", told), told
    view = json.loads(castor("what-if", "job", "--value-of-time", "40", "--json"))
    assert view["objective"]["value_of_time_usd_per_hour"] == 40.0


def test_without_options_only_the_present_objective_is_printed_and_how_to_ask(
    api: Api, castor: Castor
) -> None:
    trains(api)
    told = castor("what-if", "job")
    assert told.count("finish in") == 1 and told.count("(9 in 10:") == 2, told
    assert "present objective: balanced, at most 4 instances" in " ".join(told.split())
    assert "add --value-of-time 40, --deadline 4h, --budget 20 or --max 8" in told


def test_a_size_that_a_limit_forbids_names_it(api: Api, castor: Castor) -> None:
    trains(api)
    assert re.search(r"4 x large .*not available: \w", castor("curve", "job"))


def test_the_history_is_a_table_over_time(api: Api, castor: Castor) -> None:
    trains(api)
    told = castor("history", "job", "--points", "8")
    assert re.search(r"\d\d:\d\d:\d\d +1 x small +320 +32 +64 .*\$0.1000/h +\$0.00", told), told
    assert told.count("\n") == 11
    view = json.loads(castor("history", "job", "--since", "99999d", "--json"))
    assert len(view["times"]) == 20
    assert re.search("--since: .*soon.*", castor("history", "job", "--since", "soon"))


def test_studies_are_a_table(api: Api, castor: Castor) -> None:
    assert castor("study", "list").startswith("no study has run here")
    searched(api)
    told = castor("study", "list")
    assert re.search(r"sweep +ada +0.4 +1 +0 +1 +\$0.2000 +\$0.00\d+ +-", told), told
    assert json.loads(castor("study", "list", "--json"))[0]["name"] == "sweep"


def test_what_is_not_known_is_said(api: Api, castor: Castor) -> None:
    api.client.submit(SPEC)
    assert castor("curve", "job") == "job: no curve: no throughput model is fitted yet\n"
    assert "no throughput model is fitted yet" in castor("what-if", "job")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--deadline", "soon"), "--deadline: .*soon.*"),
        (("--deadline", "2001-01-01T00:00Z"), "--deadline: .* ago"),
        (("--budget", "-3"), "--budget: .*not an amount"),
        (("--value-of-time", "much"), "--value-of-time: .*not an amount"),
    ],
)
def test_an_option_that_can_not_be_read_is_named(
    castor: Castor, words: tuple[str, ...], error: str
) -> None:
    assert re.search(error, castor("what-if", "job", *words))


def test_predicted_money_has_two_significant_digits() -> None:
    amounts = (0, 0.0012345, 0.126, 1.26, 12.6, 1263.0, float("inf"))
    assert [predicted_money(usd) for usd in amounts] == [
        *("$0", "$0.0012", "$0.13", "$1.3", "$13", "$1,300", "-"),
    ]


def test_a_change_is_tried_and_nothing_is_stored(api: Api, castor: Castor) -> None:
    trains(api)
    told = castor("set", "job", "objective=value_of_time=1000", "max=3", "--dry-run")
    plan = r"With the change, the next plan would give job \d x \w+ for \$0.[3-9]\d+/h: \w+ job "
    assert re.search(plan, told), told
    for words in ("without the change", "1 to 3 instances", "finish in", "whole cost"):
        assert words in told, told
    last = "Nothing was changed. To change the job, leave out --dry-run."
    assert told.splitlines()[-1].strip() == last
    assert api.client.job("job").bounds.maximum == 4
    api.client.freeze()
    api.world.tick(1)
    told = castor("set", "job", "max=3", "--dry-run")
    assert "That plan would not be carried out for now: frozen by owner." in told and last in told
    view = json.loads(castor("set", "job", "priority=high", "--dry-run", "--json"))
    assert view["job"]["priority"] > 1 and view["decision"]["job"] == "job"
    api.client.submit(replace(SPEC, name="new"))
    told = castor("set", "new", "priority=high", "--dry-run")
    unknown = (
        "What the next plan would do with the change is unknown: no throughput model is fitted"
    )
    assert unknown in told and last in told, told
