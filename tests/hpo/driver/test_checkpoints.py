"""Checkpoints that stay when a study ends."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState

from autoscaler.domain.errors import Unavailable
from autoscaler.wire.client import StudyClient
from hpo.driver.checkpoints import removable_checkpoints, remove_checkpoints
from hpo.protocol import attributes


def study_of(*values: float | None) -> optuna.Study:
    """A study with a complete trial of each value, a pruned one for None, and one that runs."""
    study = optuna.create_study(direction="maximize")
    for value in values:
        trial = study.ask()
        trial.set_user_attr(attributes.JOB, f"job-{trial.number}")
        if value is None:
            study.tell(trial, state=TrialState.PRUNED)
        else:
            study.tell(trial, value)
    study.ask().set_user_attr(attributes.JOB, "running")
    return study


def test_the_best_and_what_runs_keep_theirs() -> None:
    study = study_of(0.1, 0.7, None, 0.4)
    study.tell(study.ask(), 0.2)  # not ours
    assert [name.split("-")[1] for name in removable_checkpoints(study)] == ["0", "2", "3"]
    assert len(removable_checkpoints(study_of(None, None))) == 2


def test_that_they_stay_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Away(StudyClient):
        def remove_checkpoints(self, trials: tuple[str, ...]) -> int:
            raise Unavailable("nobody answers")

    remove_checkpoints(study_of(1.0, 0.5), Away("http://127.0.0.1:9", "token", "sweep"))
    assert "stay where they are: nobody answers" in caplog.text
