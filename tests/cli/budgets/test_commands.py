"""Commands on budgets, through the whole API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.domain.errors import NotFound, SpecError
from tests.cli.access.inline import castor, run
from tests.controller.world import World
from tests.service.conftest import TOKEN, Api, served


@pytest.fixture
def api(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with served(World(tmp_path, template=template), tmp_path) as served_api:
        monkeypatch.setenv("CASTOR_URL", served_api.url)
        monkeypatch.setenv("CASTOR_TOKEN", TOKEN)
        yield served_api


def test_a_budget_is_set_listed_and_removed(api: Api) -> None:
    assert castor("budget", "list").startswith("no budgets: castor budget set")
    shown = castor(
        *("budget", "set", "team:nlp", "--month", "$2000", "--hourly", "20"),
        *("--zone", "Europe/Berlin"),
    )
    assert "team:nlp" in shown and "$0.00 of 2,000.00" in shown and "$0.00/h of 20.00" in shown
    castor("budget", "set", "fleet", "--total", "9000")
    fleet, team = json.loads(castor("budget", "list", "--json"))
    assert (fleet["scope"], fleet["total_usd"], fleet["month_usd"]) == ("fleet", "9000", None)
    assert (team["month_usd"], team["zone"]) == ("2000", "Europe/Berlin")
    assert castor("budget", "remove", "team:nlp") == "team:nlp: no budget\n"
    assert "team:nlp" not in castor("budget", "list")


def test_mistakes_are_refused_with_the_way_out(api: Api) -> None:
    wrong = run("budget", "set", "fleet", "--month", "lots")
    assert wrong.exit_code == 2 and "--month" in wrong.output
    with pytest.raises(SpecError, match="--month, --total, --hourly"):
        run("budget", "set", "fleet")
    with pytest.raises(SpecError, match="write person:NAME"):
        run("budget", "set", "everyone", "--month", "5")
    with pytest.raises(NotFound, match="castor budget list"):
        run("budget", "remove", "fleet")
