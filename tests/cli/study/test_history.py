from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import optuna
import pytest

from autoscaler.cli.pictures.study import HoldingInterval, PicturedStudy, TimeAxis, draw_study
from autoscaler.cli.study.history import pictured
from autoscaler.domain.objective import Objective
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.simulator.studies.driver import TrialReport
from autoscaler.wire.study_messages import StudyView
from hpo.driver.trial_server import begin_new_trial

FIRST, LATER = 1000.0, 1060.0


def told(job: str, *reports: tuple[float, float], at: float, has_ended: bool) -> TrialRecord:
    record = TrialRecord.first(TrialProgress(job), None, FIRST)
    stands = TrialProgress(job, reports[-1][0], reports=reports[:-1])
    record = record.told(stands, None, FIRST + 20)
    return record.told(replace(stands, reports=reports, progress=9.0), None, FIRST + 30).told(
        replace(stands, reports=reports, progress=9.5, has_ended=has_ended), None, at
    )


def history() -> PicturedStudy:
    stays = (
        StudyStay("s-0", "i", "small", 2, Decimal("3.6"), FIRST, FIRST + 45),
        StudyStay("s-1", "i", "small", 2, Decimal("3.6"), FIRST + 45, None),
    )
    records = (
        told("s-0", (1.0, 5.0), (2.0, 4.0), at=FIRST + 40, has_ended=True),
        told("s-1", (1.0, 6.0), (2.0, 3.0), at=FIRST + 50, has_ended=False),
    )
    terms = StudyTerms(Objective(deadline_seconds=FIRST + 500))
    view = StudyView("s", None, terms, records, Decimal("0.06"), Decimal("3.6"))
    study = optuna.create_study()
    for record in records:
        begin_new_trial(study).bind(record.stands.job)
    study.tell(0, 4.0)
    return pictured(view, stays, study.trials, LATER, "minimize")


def test_short_trials_of_one_job_have_their_parts_of_its_time() -> None:
    stays = (StudyStay("s-0", "i", "small", 1, Decimal("3.6"), FIRST, FIRST + 40),)
    first = TrialRecord.first(TrialProgress("s-0", has_ended=True), None, FIRST + 2)
    view = StudyView("s", None, None, (first,), None, Decimal(0))
    trials = [
        optuna.trial.FrozenTrial(
            number=number,
            state=optuna.trial.TrialState.COMPLETE,
            value=float(number),
            datetime_start=datetime.fromtimestamp(FIRST + begun),
            datetime_complete=datetime.fromtimestamp(FIRST + ended),
            params={},
            distributions={},
            user_attrs={"castor:job": "s-0"},
            system_attrs={},
            intermediate_values={},
            trial_id=number,
        )
        for number, begun, ended in ((0, -5.0, 10.0), (1, 10.0, 12.0))
    ]
    drawn = pictured(view, stays, trials, FIRST + 50, "minimize")
    assert [trial.spans for trial in drawn.trials] == [
        (HoldingInterval(0.0, 10.0, 1),),
        (HoldingInterval(10.0, 12.0, 1),),
    ]
    assert [trial.reports for trial in drawn.trials] == [
        (TrialReport(10.0, 0.0, 0.0),),
        (TrialReport(12.0, 0.0, 1.0),),
    ]


def test_what_was_kept_of_a_study_is_what_is_drawn() -> None:
    drawn = history()
    first, second = drawn.trials
    assert first.end == "complete"
    assert first.spans == (HoldingInterval(0.0, 40.0, 2), HoldingInterval(40.0, 45.0, 0)), (
        "idle after its end"
    )
    assert second.spans == (HoldingInterval(45.0, 60.0, 2),), "until now"
    assert first.reports == (TrialReport(20.0, 1.0, 5.0), TrialReport(30.0, 2.0, 4.0))
    assert [(level.at_s, level.instances) for level in drawn.held] == [
        (0.0, 1),
        (60.0, 0),
    ], "the instance was handed on, not released"
    assert (drawn.deadline_s, drawn.cost_usd) == (500.0, 0.06)


def test_the_picture_of_a_study_that_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_study(history(), tmp_path / "study.png")
    assert (tmp_path / "study.png").stat().st_size > 20_000


def test_a_trial_that_was_resumed_has_what_all_its_jobs_held() -> None:
    stays = (
        StudyStay("s-0", "i", "small", 1, Decimal("3.6"), FIRST, FIRST + 40),
        StudyStay("s-0-2", "k", "small", 2, Decimal("3.6"), FIRST + 200, FIRST + 260),
    )
    first = told("s-0", (1.0, 5.0), (2.0, 4.0), at=FIRST + 40, has_ended=False)
    again = TrialRecord.first(
        TrialProgress("s-0-2", 3.0, reports=((1.0, 5.0), (2.0, 4.0), (3.0, 3.0))),
        None,
        FIRST + 230,
    )
    view = StudyView("s", None, None, (first, again), None, Decimal(0))
    study = optuna.create_study()
    trial = begin_new_trial(study)
    for job in ("s-0", "s-0-2"):
        trial.bind(job)
    drawn = pictured(view, stays, study.trials, FIRST + 300, "minimize")
    assert [one.number for one in drawn.trials] == [0]
    assert drawn.trials[0].spans == (
        HoldingInterval(0.0, 40.0, 1),
        HoldingInterval(200.0, 260.0, 2),
    )
    assert drawn.trials[0].reports == (
        TrialReport(20.0, 1.0, 5.0),
        TrialReport(30.0, 2.0, 4.0),
        TrialReport(230.0, 3.0, 3.0),
    )
    assert [level.instances for level in drawn.held] == [1, 0, 1, 0]


def test_an_instance_that_is_free_for_seconds_is_not_released() -> None:
    stays = [
        StudyStay("s-0", "i", "small", 1, Decimal("3.6"), FIRST, FIRST + 10),
        StudyStay("s-1", "i", "small", 1, Decimal("3.6"), FIRST + 11, FIRST + 20),
        StudyStay("s-2", "i", "small", 1, Decimal("3.6"), FIRST + 200, FIRST + 210),
        StudyStay("s-3", "k", "small", 1, Decimal("7.2"), FIRST + 5, FIRST + 30),
    ]
    drawn = pictured(
        StudyView("s", None, None, (), None, Decimal(0)), stays, [], FIRST + 300, "minimize"
    )
    assert [(level.at_s, level.instances, level.usd_per_hour) for level in drawn.held] == [
        (0.0, 1, pytest.approx(3.6)),
        (5.0, 2, pytest.approx(10.8)),
        (20.0, 1, pytest.approx(7.2)),
        (30.0, 0, pytest.approx(0.0)),
        (200.0, 1, pytest.approx(3.6)),
        (210.0, 0, pytest.approx(0.0)),
    ]


@pytest.mark.parametrize(("deadline_s", "last"), [(80.0, 80.0), (500.0, 60.0), (None, 60.0)])
def test_the_axis_ends_with_the_study_where_its_deadline_is_far(
    deadline_s: float | None, last: float
) -> None:
    axis = TimeAxis(replace(history(), deadline_s=deadline_s))
    assert axis.last == pytest.approx(last)
