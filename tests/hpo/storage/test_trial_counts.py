"""The number of trials that a study file's total counts."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState

from hpo.driver.retries import enqueue_retries
from hpo.driver.trial_server import begin_new_trial, begin_waiting_retry
from hpo.storage.trial_counts import TrialCounts, count_trials


def test_trials_that_have_ended_and_those_left_open_count() -> None:
    study = optuna.create_study()
    assert count_trials(study) == TrialCounts(0, 0)
    for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL):
        value = 1.0 if state is TrialState.COMPLETE else None
        study.tell(study.ask(), value, state)
    begin_new_trial(study).bind("sweep-3")
    study.ask()  # by somebody else
    study.enqueue_trial({"rate": 0.1})
    totals = count_trials(study)
    assert totals == TrialCounts(ended=3, open=1)
    assert [totals.to_begin(total) for total in (12, 5, 4, 2)] == [8, 1, 0, 0]


def test_a_trial_and_its_retries_are_one() -> None:
    study = optuna.create_study()
    server = begin_new_trial(study)
    server.bind("sweep-0")
    seen = [count_trials(study)]
    for _ in range(2):
        assert server.fail("lost", most_retries=2)
        seen.append(count_trials(study))
        enqueue_retries(study)
        seen.append(count_trials(study))
        retry = begin_waiting_retry(study)
        assert retry is not None
        server = retry
        seen.append(count_trials(study))
    assert seen == [TrialCounts(0, 1)] * 7
    assert not server.fail("lost", most_retries=2)
    assert count_trials(study) == TrialCounts(1, 0)


@pytest.mark.parametrize("total", [1, 2, 10])
def test_more_trials_than_the_total_leave_none_to_begin(total: int) -> None:
    assert TrialCounts(9, 1).to_begin(total) == 0
