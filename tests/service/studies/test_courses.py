from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from autoscaler.domain.errors import NotFound
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.series import spending_series
from autoscaler.service.studies.courses import course_of_study, rungs_of
from autoscaler.service.studies.stays import stays_of_study
from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyStatement
from tests.service.agents import SPEC, joined
from tests.service.conftest import TOKEN, Api
from tests.service.studies.test_studies import TRIAL, driver
from tests.store.read_lines import read_lines
from tests.store.test_statements import counted


def searched(api: Api) -> StudyClient:
    """Let two trials of a study report values over a minute; the first one ends."""
    study = driver(api)
    jobs = [joined(api, replace(TRIAL, name=f"sweep-{number}"))[0].job for number in (0, 1)]
    values = ((0, 1.0, 0.9), (1, 1.0, 0.5), (0, 2.0, 0.7), (1, 2.0, 0.4))
    reports: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
    terms = StudyTerms(objective=Objective(deadline_seconds=2e6), full_work=9.0, best=0.4)
    for number, progress, value in values:
        api.world.tick(5)
        driver(api)
        reports[number].append((progress, value))
        stands = TrialProgress(
            jobs[number],
            progress,
            3.0 if number else 2.0,
            reports=tuple(reports[number]),
            has_ended=number == 0 and progress == 2.0,
        )
        study.state(StudyStatement("ada", terms, (stands,)))
    return study


def test_studies_are_listed_in_pages(api: Api) -> None:
    assert api.client.studies() == ()
    searched(api)
    for name in ("b", "a"):
        api.world.store.studies.state(name, StudyTerms())
    assert [summary.name for summary in api.client.studies()] == ["a", "b", "sweep"]
    sweep = api.client.studies()[-1]
    assert (sweep.running, sweep.waiting, sweep.ended) == (1, 0, 1)
    assert (sweep.best, sweep.deadline_seconds, sweep.driver) == (0.4, 2e6, "ada")
    assert sweep.spent_usd is not None and sweep.spent_usd > 0
    headers = {"Authorization": f"Bearer {TOKEN}"}
    first = httpx.get(f"{api.url}/v1/studies?limit=2", headers=headers)
    assert [summary["name"] for summary in first.json()] == ["a", "b"]
    rest = httpx.get(f"{api.url}{first.links['next']['url']}", headers=headers)
    assert [summary["name"] for summary in rest.json()] == ["sweep"] and not rest.links
    refused = httpx.get(f"{api.url}/v1/studies?limit=2&cursor=x", headers=headers)
    assert refused.status_code == 422 and refused.json()["field"] == "cursor"


def test_the_course_of_a_study_has_its_best_value_by_time_and_cost(api: Api) -> None:
    view = searched(api).history(50)
    assert [(best.value, best.job, best.progress) for best in view.best] == [
        *((0.9, "sweep-0", 1.0), (0.5, "sweep-1", 1.0), (0.4, "sweep-1", 2.0)),
    ]
    costs = [best.spent_usd for best in view.best]
    assert costs == sorted(costs) and 0 < costs[0] < costs[-1] <= view.spent_usd[-1]
    assert len(view.times) == len(view.instances) == len(view.spent_usd) == 50
    assert max(view.instances) == 2 and max(view.usd_per_hour) == pytest.approx(0.2)
    assert [(rung.progress, rung.reached, rung.stopped) for rung in view.rungs] == [
        *((2.0, 2, 1), (3.0, 0, 0), (9.0, 0, 0)),
    ]


def test_the_course_of_a_study_needs_no_bills_of_other_jobs(api: Api) -> None:
    study = searched(api)
    joined(api, replace(SPEC, name="other"))
    api.world.tick(2)
    store, view = api.world.store, study.view()
    with read_lines() as lines:
        course = course_of_study(store, view, api.world.clock.now(), 50)
        stays = stays_of_study(store, "sweep")
    assert {line.job for line in lines} == {stay.job for stay in stays} == {"sweep-0", "sweep-1"}
    assert {stay.devices for stay in stays} == {1}
    whole = Ledger(store.ledger.entries())
    expected = spending_series(whole, {"sweep-0", "sweep-1"}, course.times)
    assert (course.spent_usd, course.usd_per_hour) == (expected.spent_usd, expected.usd_per_hour)
    with counted() as few:
        stays_of_study(store, "sweep")
    job = joined(api, replace(TRIAL, name="sweep-2"))[0].job
    store.studies.tell("sweep", [(TrialProgress(job), None)], 0.0)
    with counted() as many:
        assert len(stays_of_study(store, "sweep")) == 3
    assert len(many) == len(few)


def test_an_unknown_study_has_no_course(api: Api) -> None:
    with pytest.raises(NotFound):
        StudyClient(api.url, TOKEN, "none").history()


def test_trials_that_wait_at_a_rung_are_counted() -> None:
    trials = [
        TrialRecord(TrialProgress("a", 3.0, 3.0), 0.0),
        TrialRecord(TrialProgress("b", 3.0, 3.0, has_ended=True), 0.0),
        TrialRecord(TrialProgress("c", 1.0, 3.0), 0.0),
    ]
    (rung,) = rungs_of(trials, None)
    assert (rung.reached, rung.waiting, rung.stopped) == (2, 1, 1)
    assert rungs_of(trials[:0], 9.0) == ()
