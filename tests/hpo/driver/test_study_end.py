"""Why a study ends before its effort is made."""

from __future__ import annotations

import logging
from typing import Any, cast

import optuna
import pytest
from optuna.trial import TrialState

from autoscaler.domain.plan import Action, ReasonCode
from autoscaler.wire.messages import DecisionView, JobView
from hpo.driver.ended_trials import EndedTrial, log_trial_end
from hpo.driver.study_end import (
    AllTrialsFailed,
    BudgetUsedUp,
    DeadlineReached,
    NothingRan,
    ended_trial_numbers,
    is_blocked_by_deadline,
    planner_warning,
    require_result,
)
from hpo.protocol import attributes


class View:
    """Part of a job's view that the test reads."""

    def __init__(
        self, ground: str | None, instances: tuple[object, ...] = (), note: str = ""
    ) -> None:
        self.instances = instances
        self.decision = None
        if ground is not None:
            reason = "wait s-0: too dear"
            self.decision = DecisionView(
                1.0, "s-0", Action.WAIT, reason, None, None, {}, ground, note
            )


def waits(*views: View | None, ends_at_deadline: bool = False) -> bool:
    jobs = cast(list[JobView | None], cast(Any, list(views)))
    return is_blocked_by_deadline(jobs, True, ends_at_deadline)


def test_for_want_of_money_it_is_said_so() -> None:
    with pytest.raises(BudgetUsedUp, match="wait s-0: too dear: raise the budget"):
        waits(View(ReasonCode.BEYOND_BUDGET), View(ReasonCode.BEYOND_DEADLINE))


def test_a_run_that_leaves_trials_to_a_deadline_is_an_error() -> None:
    with pytest.raises(
        DeadlineReached, match=r"^a trial can't begin before the deadline: wait s-0"
    ):
        waits(View(ReasonCode.BEYOND_DEADLINE))
    with pytest.raises(DeadlineReached, match=r"^2 trials can't begin"):
        waits(View(ReasonCode.BEYOND_DEADLINE), View(ReasonCode.BEYOND_DEADLINE))


def test_a_study_that_is_to_end_at_its_deadline_does(caplog: pytest.LogCaptureFixture) -> None:
    assert waits(View(ReasonCode.BEYOND_DEADLINE), ends_at_deadline=True)
    assert "the study ends here: wait s-0: too dear" in caplog.text


def test_a_deadline_that_lets_no_trial_begin_is_an_error() -> None:
    views = cast(list[JobView | None], [View(ReasonCode.BEYOND_DEADLINE)])
    with pytest.raises(NothingRan, match="no trial has run: wait s-0: too dear: set a later"):
        is_blocked_by_deadline(views, has_run=False)


def test_a_run_without_a_result_is_an_error() -> None:
    study = optuna.create_study()
    with pytest.raises(NothingRan, match="no trial has ended in this run"):
        require_result(study, ended_trial_numbers(study))
    study.tell(study.ask(), state=TrialState.FAIL)
    with pytest.raises(AllTrialsFailed, match="the only trial of this run failed: its"):
        require_result(study, frozenset())
    with pytest.raises(NothingRan):
        require_result(study, ended_trial_numbers(study))
    study.tell(study.ask(), state=TrialState.FAIL)
    with pytest.raises(AllTrialsFailed, match="all 2 trials of this run failed; the last: its"):
        require_result(study, frozenset())
    study.tell(study.ask(), 0.5)
    require_result(study, frozenset())


@pytest.mark.parametrize(
    "views",
    [
        [],
        [View("study")],
        [View(None)],
        [None],
        [View(ReasonCode.BEYOND_BUDGET), View("study")],
        [View(ReasonCode.BEYOND_BUDGET, ("i-1",))],
        [View(ReasonCode.BEYOND_BUDGET), None],
    ],
)
def test_as_long_as_one_may_begin_it_is_not(views: list[View | None]) -> None:
    assert not waits(*views)


def test_what_can_not_be_kept_is_heard_of_one_that_knows_it() -> None:
    late = View("", note="a deadline in 1 s is out of reach")
    views = cast(list[JobView], [View(None), View("study"), late])
    assert planner_warning(views) == "a deadline in 1 s is out of reach"
    assert planner_warning(views[:2]) is None


def printed(caplog: pytest.LogCaptureFixture, log: str = "hpo.driver.ended_trials") -> list[str]:
    """Return the lines of a log; two handlers may have recorded each."""
    lines = [record.getMessage() for record in caplog.records if record.name == log]
    return list(dict.fromkeys(lines))


def test_ends_are_printed_as_optuna_prints_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("optuna"), "propagate", True)
    for log in ("hpo", "optuna"):
        caplog.set_level(logging.INFO, log)
    study = optuna.create_study(direction="maximize")
    study.optimize(lambda trial: trial.suggest_float("rate", 0.0, 1.0), n_trials=2)
    here = optuna.create_study(direction="maximize")
    for trial in study.trials:
        here.add_trial(trial)
        log_trial_end(EndedTrial(trial), here)
    expected = printed(caplog, "optuna.study.study")
    assert len(expected) == 2 and printed(caplog) == expected


def test_several_values_have_no_best(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hpo")
    study = optuna.create_study(directions=["minimize", "maximize"])
    study.tell(study.ask(), [0.5, 2.0])
    log_trial_end(EndedTrial(study.trials[0]), study)
    assert printed(caplog) == ["Trial 0 finished with values: [0.5, 2.0] and parameters: {}."]


def test_pruned_and_failed_trials_are_printed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hpo")
    study = optuna.create_study()
    pruned, failed = study.ask(), study.ask()
    pruned.report(1.0, 3)
    study.tell(pruned, state=TrialState.PRUNED)
    failed.set_user_attr(attributes.CAUSE, "not retried: killed")
    study.tell(failed, state=TrialState.FAIL)
    for trial in study.trials:
        log_trial_end(EndedTrial(trial, is_retried=trial.state is TrialState.FAIL), study)
    assert printed(caplog) == [
        "Trial 0 pruned at step 3.",
        "Trial 1 failed: its job failed (not retried: killed); a new trial with its parameters "
        "takes its place",
    ]
