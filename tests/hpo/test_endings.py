"""Why a study ends before its effort is made."""

from __future__ import annotations

import logging
from typing import Any, cast

import optuna
import pytest
from optuna.trial import TrialState

from autoscaler.domain.plan import BEYOND_BUDGET, BEYOND_DEADLINE, Action
from autoscaler.wire.messages import DecisionView, JobView
from hpo.ended import EndedTrial, log_end
from hpo.endings import (
    AllTrialsFailed,
    BudgetUsedUp,
    NothingRan,
    ended_trials,
    require_result,
    waits_for_ever,
    what_is_missed,
)


class View:
    """What is looked at of a job."""

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


def waits(*views: View | None) -> bool:
    return waits_for_ever(cast(list[JobView | None], cast(Any, list(views))), has_run=True)


def test_for_want_of_money_it_is_said_so() -> None:
    with pytest.raises(BudgetUsedUp, match="wait s-0: too dear: give the study more"):
        waits(View(BEYOND_BUDGET), View(BEYOND_DEADLINE))


def test_for_want_of_time_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    assert waits(View(BEYOND_DEADLINE))
    assert "the study ends here: wait s-0: too dear" in caplog.text


def test_a_deadline_that_lets_no_trial_begin_is_an_error() -> None:
    views = cast(list[JobView | None], [View(BEYOND_DEADLINE)])
    with pytest.raises(NothingRan, match="no trial has run: wait s-0: too dear: set a later"):
        waits_for_ever(views, has_run=False)


def test_a_run_without_a_result_is_an_error() -> None:
    study = optuna.create_study()
    with pytest.raises(NothingRan, match="no trial has ended in this run"):
        require_result(study, ended_trials(study))
    study.tell(study.ask(), state=TrialState.FAIL)
    with pytest.raises(AllTrialsFailed, match="all 1 trials of this run failed; the last: its"):
        require_result(study, frozenset())
    with pytest.raises(NothingRan):
        require_result(study, ended_trials(study))
    study.tell(study.ask(), 0.5)
    require_result(study, frozenset())


@pytest.mark.parametrize(
    "views",
    [
        [],
        [View("study")],
        [View(None)],
        [None],
        [View(BEYOND_BUDGET), View("study")],
        [View(BEYOND_BUDGET, ("i-1",))],
        [View(BEYOND_BUDGET), None],
    ],
)
def test_as_long_as_one_may_begin_it_is_not(views: list[View | None]) -> None:
    assert not waits(*views)


def test_what_can_not_be_kept_is_heard_of_one_that_knows_it() -> None:
    late = View("", note="a deadline in 1 s is out of reach")
    views = cast(list[JobView], [View(None), View("study"), late])
    assert what_is_missed(views) == "a deadline in 1 s is out of reach"
    assert what_is_missed(views[:2]) is None


def test_ends_are_said_as_a_person_reads_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for values in ([0.5], [0.5, 2.0]):
        distributions = {"rate": optuna.distributions.FloatDistribution(0.0, 1.0)}
        trial = optuna.trial.create_trial(
            values=values, params={"rate": 0.25}, distributions=distributions
        )
        log_end(EndedTrial(trial))
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition(": ")[2] for text in said] == [
        "0.5 with {'rate': 0.25}",
        "0.5, 2.0 with {'rate': 0.25}",
    ]
