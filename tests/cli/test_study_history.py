from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import optuna
import pytest

from autoscaler.cli.pictures.study import PicturedStudy, Span, draw_study
from autoscaler.cli.study_history import pictured
from autoscaler.domain.objective import Objective
from autoscaler.domain.study_stay import StudyStay
from autoscaler.domain.terms import StudyTerms, TrialProgress, TrialRecord
from autoscaler.simulator.study_driver import Report
from autoscaler.wire.study_messages import StudyView

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
    for _ in records:
        study.ask()
    study.tell(0, 4.0)
    trials = {f"s-{trial.number}": trial for trial in study.trials}
    return pictured(view, stays, trials, LATER, "minimize")


def test_what_was_kept_of_a_study_is_what_is_drawn() -> None:
    drawn = history()
    first, second = drawn.trials
    assert first.end == "complete"
    assert first.spans == (Span(0.0, 40.0, 2), Span(40.0, 45.0, 0)), "idle after its end"
    assert second.spans == (Span(45.0, 60.0, 2),), "until now"
    assert first.reports == (Report(20.0, 1.0, 5.0), Report(30.0, 2.0, 4.0))
    assert [(level.at_s, level.instances) for level in drawn.held] == [
        (0.0, 1),
        (45.0, 1),
        (60.0, 0),
    ]
    assert (drawn.deadline_s, drawn.cost_usd) == (500.0, 0.06)


def test_the_picture_of_a_study_that_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_study(history(), tmp_path / "study.png")
    assert (tmp_path / "study.png").stat().st_size > 20_000
