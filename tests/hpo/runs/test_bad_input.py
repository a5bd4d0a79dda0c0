"""Errors of bad input in Optuna's words or with the key's name; the study continues."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.exceptions import StorageInternalError
from optuna.trial import BaseTrial, TrialState

import hpo
from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import StoreError, Unavailable
from hpo.driver.trial_server import begin_new_trial
from hpo.protocol import attributes
from hpo.storage.studies import optimization_context
from hpo.worker.process import run_trial
from tests.hpo.lines import DirectChannel, records, run_all


def returns(value: object) -> Callable[[BaseTrial], object]:
    def objective(trial: BaseTrial) -> object:
        trial.suggest_float("x", 0.0, 1.0)
        return value

    return objective


def reports(*told: tuple[object, object]) -> Callable[[BaseTrial], object]:
    def objective(trial: BaseTrial) -> object:
        for value, step in told:
            trial.report(value, step)  # type: ignore[arg-type]
            trial.should_prune()
        return 1.0

    return objective


def suggests_otherwise(trial: BaseTrial) -> float:
    trial.suggest_float("x", 0.0, 1.0)
    return trial.suggest_float("x", 2.0, 3.0)


def suggests_another_kind(trial: BaseTrial) -> float:
    trial.suggest_float("x", 0.0, 1.0)
    return trial.suggest_int("x", 0, 1)


def suggests_nothing_possible(trial: BaseTrial) -> float:
    return trial.suggest_float("x", 3.0, 2.0)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("objective", "state", "cause"),
    [
        (returns(None), "FAIL", "the objective returned None, which is no number"),
        (returns("good"), "FAIL", "the objective returned 'good', which is no number"),
        (returns([1.0, 2.0]), "FAIL", "the objective returned 2 values, the study has 1"),
        (returns([]), "FAIL", "the objective returned 0 values, the study has 1"),
        (returns(float("nan")), "FAIL", "the objective returned NaN"),
        (returns(float("inf")), "COMPLETE", None),
        (reports((0.5, 2), (0.4, 1), (0.3, 7)), "COMPLETE", None),
        (reports((0.5, 1), (0.4, 1), (0.3, 2)), "COMPLETE", None),
        (reports((float("nan"), 1), (float("inf"), 2)), "COMPLETE", None),
        (reports(("0.5", "3")), "COMPLETE", None),
        (reports((0.5, -1)), "FAIL", "ValueError: .*step.* -1"),
        (reports((0.5, "first")), "FAIL", "TypeError: .*step"),
        (reports(("good", 1)), "FAIL", "TypeError: .*value"),
        (suggests_otherwise, "COMPLETE", None),
        (suggests_another_kind, "FAIL", "ValueError: Cannot set different distribution kind"),
        (suggests_nothing_possible, "FAIL", "ValueError: .*low.* high"),
    ],
)
def test_an_objective_of_another_mind_is_told_so_as_optuna_tells_it(
    objective: Callable[[BaseTrial], object], state: str, cause: str | None
) -> None:
    here, there = (
        optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)) for _ in range(2)
    )
    here.optimize(objective, n_trials=1, catch=Exception)  # type: ignore[arg-type]
    run_all(there, objective, 1)
    assert str(records(there)) == str(records(here))  # NaN is not itself
    (trial,) = there.trials
    assert trial.state is TrialState[state]
    told = trial.user_attrs.get(attributes.CAUSE)
    assert (told is None) if cause is None else re.search(cause, told)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("objective", "place"),
    [
        (suggests_nothing_possible, "suggests_nothing_possible"),
        (suggests_another_kind, "suggests_another_kind"),
    ],
)
def test_the_cause_of_a_failed_trial_names_the_line_of_its_objective(
    objective: Callable[[BaseTrial], object], place: str
) -> None:
    study = optuna.create_study()
    run_all(study, objective, 1)
    cause = study.trials[0].user_attrs[attributes.CAUSE]
    assert re.search(rf" \(test_bad_input\.py:\d+, in {place}\)$", cause)


def test_an_objective_that_ends_its_process_has_failed() -> None:
    def objective(trial: BaseTrial) -> float:
        raise SystemExit(3)

    study = optuna.create_study()
    server = begin_new_trial(study)
    run_trial(objective, DirectChannel(server))
    assert study.trials[0].state is TrialState.FAIL
    cause = study.trials[0].user_attrs[attributes.CAUSE]
    assert cause == "the objective called sys.exit(3)"
    assert "builtins.Exception" in server.error_kinds, "`catch: all` tolerates it"


@pytest.mark.parametrize("status", [0, None])
def test_a_worker_that_leaves_tells_no_end(status: int | None) -> None:
    def objective(trial: BaseTrial) -> float:
        raise SystemExit(status)

    study = optuna.create_study()
    with pytest.raises(SystemExit):
        run_all(study, objective, 1)
    assert study.trials[0].state is TrialState.RUNNING


def test_what_no_storage_keeps_is_refused_in_memory_too() -> None:
    def objective(trial: BaseTrial) -> float:
        trial.set_user_attr("model", object())
        return 1.0

    study = optuna.create_study()
    run_all(study, objective, 1)
    assert study.trials[0].state is TrialState.FAIL
    assert "object is not JSON serializable" in study.trials[0].user_attrs[attributes.CAUSE]


def test_a_storage_that_can_not_be_written_is_named_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "state"))
    optuna.create_study(study_name="sweep", storage=f"sqlite:///{tmp_path}/study.db")
    study = optuna.load_study(
        study_name="sweep", storage=f"sqlite:///file:{tmp_path}/study.db?mode=ro&uri=true"
    )
    with pytest.raises(StoreError, match=r"storage: .* can't be written: .*readonly database"):
        hpo.optimize(study, returns(1.0), n_trials=1)
    assert study.trials == []
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("error", [StorageInternalError("gone"), OSError("no space left")])
def test_a_storage_that_stays_away_is_given_up_by_name(error: Exception) -> None:
    class Away(optuna.storages.InMemoryStorage):
        def set_trial_user_attr(self, *arguments: object) -> None:
            raise error

    clock = VirtualClock()
    study = optuna.create_study(storage=Away())
    with (
        pytest.raises(StoreError, match=r"storage: .* for 10 minutes: .*: run the study again"),
        optimization_context(study, clock),
    ):
        begin_new_trial(study).bind("sweep-0")
    assert clock.now() > 600.0
    assert study.trials[0].state is TrialState.RUNNING


def test_a_controller_that_stays_away_is_waited_for_from_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CASTOR_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CASTOR_TOKEN", "token")
    clock, study = VirtualClock(), optuna.create_study()
    monkeypatch.setattr("hpo.runs.optimize.SystemClock", lambda: clock)
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:9"):
        hpo.optimize(study, returns(1.0), n_trials=1, files=tmp_path)
    assert clock.now() > 600.0
    messages = [each.getMessage() for each in caplog.records]
    first, *_ = (message for message in messages if "next attempt" in message)
    assert "(retrying for 10 minutes); next attempt in 0.25 s: no controller answers" in first
    assert study.trials == []
