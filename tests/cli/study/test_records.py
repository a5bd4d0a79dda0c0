"""Records of a study that `castor study` reads from its controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.cli.study.facts import TrialCosts
from autoscaler.cli.study.records import job_costs_of, view_of
from tests.controller.world import World
from tests.service.conftest import TOKEN, served
from tests.service.studies.test_courses import searched


def test_the_costs_of_a_studys_jobs_are_those_of_its_page(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(World(tmp_path, template=template), tmp_path) as api:
        study = searched(api)
        monkeypatch.setenv("CASTOR_URL", api.url)
        monkeypatch.setenv("CASTOR_TOKEN", TOKEN)
        costs = job_costs_of("sweep", {})
        assert set(costs) == {"sweep-0", "sweep-1"} and min(costs.values()) > 0
        assert costs == study.history(2).job_usd
        records = TrialCosts.of(view_of("sweep", {}), costs).records
        assert set(records) == set(costs)


def test_without_a_controller_no_cost_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASTOR_URL", raising=False)
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path))
    assert job_costs_of("sweep", {}) == {} and view_of("sweep", {}) is None
