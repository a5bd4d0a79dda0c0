"""Pages of studies as a browser without scripts gets them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.terms import StudyTerms, TrialOutcome, TrialProgress, TrialRecord
from autoscaler.domain.trial import TrialEnding
from autoscaler.service.pages.studies import trial_lines
from autoscaler.service.pages.study_chart import MOST_ROWS, stays_chart
from autoscaler.service.studies.stays import stays_of_study
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.study_messages import StudyStatement
from tests.controller.world import World
from tests.service import conftest
from tests.service.conftest import Api
from tests.service.pages.browser import PageVisitor
from tests.service.studies.test_courses import TRIAL, driver, joined, searched


def test_studies_are_listed_with_their_best_value_and_cost(api: Api) -> None:
    visitor = PageVisitor(api)
    assert "No study has run here" in visitor.text("/studies")
    searched(api)
    text = visitor.text("/studies")
    assert "sweep" in text and "0.4000" in text and "1 study" in text


def test_a_long_list_of_studies_has_pages(api: Api) -> None:
    for number in range(30):
        api.world.store.studies.state(f"study-{number:02}", StudyTerms())
    visitor = PageVisitor(api)
    page = visitor.get("/studies").text
    assert "study-24" in page and "study-25" not in page
    address = page.split('rel="next" href="')[1].split('"')[0]
    rest = visitor.get(address.replace("&amp;", "&")).text
    assert "study-25" in rest and "study-24" not in rest and 'rel="next"' not in rest


def test_a_study_has_its_drawings_and_tables(api: Api) -> None:
    searched(api)
    visitor = PageVisitor(api)
    page, text = visitor.get("/studies/sweep").text, visitor.text("/studies/sweep")
    for words in (
        *("Best value by cost", "Rungs", "Instances and trials", "Trials", "optuna-dashboard"),
        *("spent on all trials", "best value so far", "0.4000", "sweep-1", "driven by ada"),
    ):
        assert words in text, words
    assert page.count('class="stay s') == 2 and 'class="best-line"' in page


def test_a_study_links_to_a_dashboard_that_is_named(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "OPTUNA_DASHBOARD", "https://optuna.example/?a=1&b=2")
    monkeypatch.setattr(conftest, "application", conftest.application.__wrapped__)
    with conftest.served(World(tmp_path, template=template), tmp_path) as api:
        searched(api)
        page = PageVisitor(api).get("/studies/sweep").text
    assert 'href="https://optuna.example/?a=1&amp;b=2"' in page and "sqlite:///" not in page


def test_stays_are_shown_to_those_who_may_read_them(api: Api) -> None:
    searched(api)
    token = api.client.invite("eve", InvitationRequest(Role.VIEWER)).token
    page = PageVisitor(api, token).get("/studies/sweep").text
    assert "Only its owner" in page and 'class="stay' not in page and "Best value" in page


def test_an_unknown_study_has_no_page(api: Api) -> None:
    reply = PageVisitor(api).get("/studies/none")
    assert reply.status_code == 404 and "castor study run" in reply.text


def test_many_instances_are_drawn_up_to_a_limit(api: Api) -> None:
    searched(api)
    assert stays_chart((), 0.0) is None
    (stay, *_) = stays_of_study(api.world.store, "sweep")
    stays = [replace(stay, instance=f"i-{number}") for number in range(MOST_ROWS + 5)]
    drawing = stays_chart(stays, api.world.clock.now())
    assert drawing is not None and len(drawing.rows) == MOST_ROWS and drawing.left_out == 5


def test_short_trials_that_share_a_job_are_all_counted_and_shown(api: Api) -> None:
    study = driver(api)
    job = joined(api, replace(TRIAL, name="sweep-0"))[0].job
    terms = StudyTerms(best=1.41, under_way=0, ended=0)
    for number, value in enumerate((3.0, 1.41, None)):
        api.world.tick(5)
        driver(api)
        ending = TrialEnding.PRUNED if value is None else TrialEnding.COMPLETE
        result = TrialOutcome(number, ending, value, 10.0 * (number + 1))
        stands = TrialProgress(job, has_ended=True, results=(result,))
        study.state(StudyStatement("ada", replace(terms, ended=number + 1), (stands,)))
    study.state(StudyStatement("ada", replace(terms, ended=3), (stands,)))  # once more
    visitor = PageVisitor(api)
    text, page = visitor.text("/studies/sweep"), visitor.get("/studies/sweep").text
    assert "Trials 3 0 running, 0 waiting, 3 ended" in text, text
    assert "No trial has reported a value yet" not in text and "the end of trial 1" in text
    assert page.count('class="dot"') == 2
    for words in ("trial 0 complete", "trial 1 complete", "trial 2 pruned", "1.410"):
        assert words in text, words
    summary = api.client.studies()[0]
    assert (summary.running, summary.waiting, summary.ended) == (0, 0, 3)
    course = study.history(10)
    assert [best.trial for best in course.best] == [0, 1]
    assert list(course.job_usd) == [job] and course.job_usd[job] > 0
    (record,) = api.world.store.studies.trials("sweep")
    shares = [line.usd for line in trial_lines(record, set(), 6.0)]
    assert shares == [1.0, 2.0, 3.0], "by their seconds"


def test_the_cost_of_trials_without_times_is_stated_for_their_job() -> None:
    stands = TrialProgress("sweep-0", has_ended=True)
    ends = tuple((1.0, TrialOutcome(number, TrialEnding.COMPLETE, 1.0)) for number in range(2))
    lines = trial_lines(TrialRecord(stands, 1.0, results=ends), set(), 4.0)
    assert [(line.number, line.usd, line.job_usd) for line in lines] == [
        (0, None, 4.0),
        (1, None, 4.0),
    ]
    runs = TrialProgress("sweep-0", 3.0, reports=((3.0, 0.5),))
    first, _, under_way = trial_lines(TrialRecord(runs, 1.0, results=ends), {"sweep-0"}, 4.0)
    assert (first.progress, under_way.state, under_way.progress, under_way.value) == (
        *(3.0, "running"),
        *(None, None),
    ), "the reports are those of the first trial"
    (only,) = trial_lines(TrialRecord(stands, 1.0), set(), 4.0)
    assert (only.number, only.usd, only.state) == (None, 4.0, "finished"), "of an earlier driver"
