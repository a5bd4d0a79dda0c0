"""The number of trials that a study file's total counts."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState

from hpo.driver.retries import enqueue_owed
from hpo.driver.trial_server import new_attachment, waiting_retry
from hpo.storage.trial_counts import TrialTotals, totals_of


def test_trials_that_have_ended_and_those_left_open_count() -> None:
    study = optuna.create_study()
    assert totals_of(study) == TrialTotals(0, 0)
    for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL):
        value = 1.0 if state is TrialState.COMPLETE else None
        study.tell(study.ask(), value, state)
    new_attachment(study).bind("sweep-3")
    study.ask()  # by somebody else
    study.enqueue_trial({"rate": 0.1})
    totals = totals_of(study)
    assert totals == TrialTotals(ended=3, open=1)
    assert [totals.to_begin(total) for total in (12, 5, 4, 2)] == [8, 1, 0, 0]


def test_a_trial_and_its_retries_are_one() -> None:
    study = optuna.create_study()
    attachment = new_attachment(study)
    attachment.bind("sweep-0")
    seen = [totals_of(study)]
    for _ in range(2):
        assert attachment.fail("lost", most_retries=2)
        seen.append(totals_of(study))
        enqueue_owed(study)
        seen.append(totals_of(study))
        retry = waiting_retry(study)
        assert retry is not None
        attachment = retry
        seen.append(totals_of(study))
    assert seen == [TrialTotals(0, 1)] * 7
    assert not attachment.fail("lost", most_retries=2)
    assert totals_of(study) == TrialTotals(1, 0)


@pytest.mark.parametrize("total", [1, 2, 10])
def test_more_trials_than_the_total_leave_none_to_begin(total: int) -> None:
    assert TrialTotals(9, 1).to_begin(total) == 0
