"""A trial whose job failed is begun again as another one: once, also where its driver dies."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.trial import TrialState

from autoscaler.clock import VirtualClock
from hpo.driver.ended_trials import EndedTrial
from hpo.driver.retries import enqueue_retries
from hpo.driver.run_limits import RunLimits
from hpo.driver.trial_server import begin_new_trial, begin_waiting_retry, running_trials
from hpo.protocol import attributes
from hpo.storage.studies import optimization_context
from hpo.worker.process import run_trial
from tests.hpo.lines import DirectChannel, Objective, WorkerDied
from tests.hpo.objectives import curve
from tests.hpo.site import Site, driver_of, study_of


class BreakingStorage(optuna.storages.InMemoryStorage):
    """Something happens in, or just after, the write of that number."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.after = False
        self.error: BaseException = WorkerDied()
        for name in ("create_new_trial", "set_trial_state_values", "set_trial_user_attr"):
            setattr(self, name, self._breaking(getattr(self, name)))

    def _breaking(self, write: Callable[..., object]) -> Callable[..., object]:
        def broken(*arguments: object, **options: object) -> object:
            breaks = self.left == 0
            self.left = None if self.left is None or breaks else self.left - 1
            if breaks and not self.after:
                raise self.error
            result = write(*arguments, **options)
            if breaks:
                raise self.error
            return result

        return broken


def states(study: optuna.Study) -> list[str]:
    return [trial.state.name for trial in study.trials]


def fail_and_retry(study: optuna.Study) -> None:
    """Fail the running trials as a driver does when their jobs have failed, and begin a retry."""
    for server in running_trials(study).values():
        if attributes.RETRY_OF not in server.frozen().user_attrs:
            server.fail("its instance was lost", most_retries=1)
    enqueue_retries(study)
    retry = begin_waiting_retry(study)
    if retry is not None:
        retry.bind("sweep-again")


@pytest.mark.parametrize("after", [False, True])
def test_a_driver_that_dies_anywhere_neither_loses_nor_doubles_a_retry(after: bool) -> None:
    for write in itertools.count():
        storage = BreakingStorage()
        study = study_of(storage=storage)
        server = begin_new_trial(study)
        server.bind("sweep-0")
        with pytest.raises(WorkerDied):
            run_trial(curve, DirectChannel(server, 5))
        storage.left, storage.after = write, after
        try:
            fail_and_retry(study)
        except WorkerDied:
            storage.left = None
            fail_and_retry(study)
        if storage.left is not None:
            break
        assert states(study) == ["FAIL", "RUNNING"]
        failed, retry = study.trials
        assert retry.user_attrs[attributes.RETRY_OF] == failed.number
        assert list(running_trials(study)) in (["sweep-again"], ["retry-of-0"])
        assert retry.system_attrs["fixed_params"] == failed.params != {}
    assert write >= 5


@pytest.mark.parametrize("after", [False, True])
def test_a_storage_that_is_away_loses_and_doubles_no_retry(after: bool) -> None:
    for write in itertools.count():
        storage = BreakingStorage()
        study = study_of(storage=storage)
        begin_new_trial(study).bind("sweep-0")
        storage.error = StorageInternalError("the connection broke")
        storage.left, storage.after = write, after
        with optimization_context(study, VirtualClock()):
            fail_and_retry(study)
        if storage.left is not None:
            break
        assert states(study) == ["FAIL", "RUNNING"]
    assert write >= 5


@pytest.mark.parametrize("after", [False, True])
def test_a_trial_whose_driver_dies_as_it_begins_it_is_the_next_ones(after: bool) -> None:
    storage = BreakingStorage()
    study = study_of(storage=storage)
    storage.left, storage.after = 0, after
    with pytest.raises(WorkerDied), optimization_context(study, VirtualClock()):
        begin_new_trial(study)
    assert len(running_trials(study)) == len(study.trials) == after


def test_a_trial_that_was_created_as_the_connection_broke_is_there_once() -> None:
    storage = BreakingStorage()
    study = study_of(storage=storage)
    storage.error, storage.left, storage.after = StorageInternalError("broke"), 0, True
    with optimization_context(study, VirtualClock()):
        begin_new_trial(study).bind("sweep-0")
        begin_new_trial(study).bind("sweep-1")
    assert [trial.user_attrs["castor:job"] for trial in study.trials] == ["sweep-0", "sweep-1"]


def test_a_retry_is_owed_as_often_as_is_said_and_has_the_users_attributes() -> None:
    study = study_of()
    study.enqueue_trial({"rate": 0.02}, user_attrs={"idea": "mine"})
    study.enqueue_trial({"rate": 0.03})
    server = begin_new_trial(study)
    for count in range(3):
        assert server.fail("lost", most_retries=2) == (count < 2)
        enqueue_retries(study)
        enqueue_retries(study)
        if count < 2:
            retry = begin_waiting_retry(study)
            assert retry is not None
            server = retry
    assert begin_waiting_retry(study) is None
    assert states(study) == ["FAIL", "WAITING", "FAIL", "FAIL"]
    assert [trial.user_attrs.get("castor:retry_of") for trial in study.trials] == [
        None,
        None,
        0,
        2,
    ]
    assert [trial.user_attrs.get("idea") for trial in study.trials] == ["mine", None] + [
        "mine"
    ] * 2


def test_a_trial_whose_job_failed_is_run_again_and_counts_once(
    site_of: Callable[[Objective], Site],
) -> None:
    site, study = site_of(curve), study_of()
    site.deaths, site.failing = {"sweep-0": [4]}, {"sweep-0": "out of host memory"}
    ended: list[EndedTrial] = []
    driver = driver_of(site, study)
    driver.on_end = ended.append
    assert driver.run(RunLimits(trials=2, at_once=1)) is None
    first, second, third = study.trials
    assert first.state is TrialState.FAIL and third.state.is_finished()
    assert second.state is TrialState.COMPLETE
    assert second.params == first.params != {}
    assert first.user_attrs[attributes.CAUSE] == "out of host memory"
    assert [each.is_retried for each in ended] == [True, False, False]


def test_a_failed_trial_without_a_mark_is_nobodys_to_retry() -> None:
    study = study_of()
    study.tell(study.ask(), state=TrialState.FAIL)
    enqueue_retries(study)
    assert states(study) == ["FAIL"]
