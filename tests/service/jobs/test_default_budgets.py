"""Default budgets of a deployment, for jobs and studies that name none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.job import JobSpec
from autoscaler.domain.job_rules import require_valid_job
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.terms import StudyTerms
from autoscaler.service.jobs import submissions
from autoscaler.spec.objective_text import parse_objective
from autoscaler.wire.client import StudyClient
from autoscaler.wire.messages import Change
from autoscaler.wire.study_messages import StudyLease, StudyStatement
from tests.controller.world import World
from tests.service.conftest import TOKEN, Api, served

JOB = JobSpec("digits", ("python", "train.py"))
JOB_USD, STUDY_USD = Decimal(50), Decimal(200)


@pytest.fixture
def api(tmp_path: Path, template: Path) -> Iterator[Api]:
    settings = ControllerSettings(replan_seconds=0.0, job_usd=JOB_USD, study_usd=STUDY_USD)
    with served(World(tmp_path, settings, template=template), tmp_path) as api:
        yield api


def test_a_job_that_names_no_budget_has_the_default_one(api: Api) -> None:
    client = api.client
    assert client.submit(JOB).objective == Objective(cap_usd=JOB_USD)
    assert client.plan(JOB).objective.cap_usd == JOB_USD


@pytest.mark.parametrize(
    ("objective", "most_usd"),
    [
        ("cheapest", JOB_USD),
        ({"deadline": "4h"}, JOB_USD),
        ({"budget": 70}, Decimal(70)),
        ({"budget": "none"}, None),
        ({"preference": "cheapest", "budget": "none"}, None),
        ({"value_of_time": 0, "budget": "none"}, None),
    ],
)
def test_an_owner_names_another_budget_or_none(
    api: Api, objective: object, most_usd: Decimal | None
) -> None:
    spec = replace(JOB, objective=parse_objective(objective, api.world.clock.now()))
    assert api.client.submit(spec).objective.most_usd == most_usd


def test_a_change_of_the_objective_keeps_the_default_unless_it_lifts_it(api: Api) -> None:
    client = api.client
    client.submit(JOB)
    cheapest = client.change("digits", Change(Objective(Preference.CHEAPEST)))
    assert cheapest.objective.cap_usd == JOB_USD
    lifted = client.change("digits", Change(parse_objective({"budget": "none"}, 0.0)))
    assert lifted.objective.most_usd is None


def test_a_study_that_names_no_budget_has_the_default_one(api: Api) -> None:
    client = StudyClient(api.url, TOKEN, "sweep")
    client.lease(StudyLease("ada", 30.0))
    wanted = {Objective(): STUDY_USD, Objective(is_uncapped=True): None}
    for objective, most_usd in wanted.items():
        client.state(StudyStatement("ada", StudyTerms(objective=objective), ()))
        terms = api.world.store.studies.terms("sweep")
        assert terms is not None and terms.objective.most_usd == most_usd
    trial = replace(JOB, study="sweep")
    assert api.client.submit(trial).objective.most_usd is None, "its study has one"


def test_a_trial_of_a_study_without_terms_has_the_default_of_jobs(api: Api) -> None:
    trial = replace(JOB, study="sweep")
    assert api.client.submit(trial).objective.most_usd == JOB_USD


def test_a_job_is_validated_once_where_it_is_received(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has validated the job file before."""
    seen: list[str] = []

    def validate(spec: JobSpec) -> None:
        seen.append(spec.name)
        require_valid_job(spec)

    monkeypatch.setattr(submissions, "require_valid_job", validate)
    api.client.submit(JOB)
    assert seen == [JOB.name]
