"""A study in an objective's closure is the study of its trial, also on an instance."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import optuna
import pytest
from optuna.trial import BaseTrial, TrialState

from autoscaler.domain.errors import SpecError
from hpo import optuna_internals
from hpo.objective.closure import ClosureStudy, pickle_objective
from tests.hpo.lines import Objective, run_all


def travelled(study: optuna.Study, objective: Objective) -> Objective:
    """Return an objective of a study as an instance has it."""
    there: Objective = pickle.loads(pickle_objective(objective, study))
    return there


def test_an_objective_reads_its_study_and_stops_it() -> None:
    study = optuna.create_study(directions=["maximize"], sampler=optuna.samplers.RandomSampler(1))

    def objective(trial: BaseTrial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        done = study.get_trials(states=(TrialState.COMPLETE,))
        trial.report(x, 1)
        states = [each.state for each in study.trials]
        best = study.best_value if done else None
        trial.set_user_attr("seen", [len(study.trials), len(done), best, study.user_attrs["of"]])
        trial.set_user_attr("states", [state.name for state in states])
        if len(study.trials) == 3:
            study.stop()
        return x

    study.set_user_attr("of", "mine")
    with optuna_internals.optimization_loop(study, optuna_internals.storage_of(study)):
        run_all(study, travelled(study, objective), 3)
        assert optuna_internals.is_stopped(study)
    values = [trial.values[0] for trial in study.trials]
    assert [trial.user_attrs["seen"] for trial in study.trials] == [
        [1, 0, None, "mine"],
        [2, 1, values[0], "mine"],
        [3, 2, max(values[:2]), "mine"],
    ]
    assert study.trials[2].user_attrs["states"] == ["COMPLETE", "COMPLETE", "RUNNING"]


def test_trials_are_read_as_the_study_has_them() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"])
    read: list[optuna.trial.FrozenTrial] = []

    def objective(trial: BaseTrial) -> tuple[float, float]:
        kind = trial.suggest_categorical("kind", ["a", None, 3])
        if trial.number == 1:
            read.extend(trial.study.trials)  # type: ignore[attr-defined]
            front = trial.study.best_trials  # type: ignore[attr-defined]
            assert [each.number for each in front] == [0]
            with pytest.raises(RuntimeError, match="several objectives"):
                trial.study.best_trial  # type: ignore[attr-defined]  # noqa: B018
        return float("inf"), len(str(kind))

    run_all(study, objective, 2)
    there, here = read[0], study.trials[0]
    for name in ("number", "state", "values", "params", "distributions", "user_attrs",
                 "intermediate_values", "datetime_start", "datetime_complete"):  # fmt: skip
        assert getattr(there, name) == getattr(here, name), name


def test_before_a_trial_is_complete_there_is_no_best() -> None:
    study = optuna.create_study()

    def objective(trial: BaseTrial) -> float:
        with pytest.raises(ValueError, match="No trials are completed yet"):
            study.best_trial  # noqa: B018
        with pytest.raises(AttributeError, match=r"sampler: .* use a callback"):
            study.sampler  # noqa: B018
        return 1.0

    run_all(study, travelled(study, objective), 1)
    assert study.best_value == 1.0


def test_the_same_study_loaded_twice_is_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="sweep", storage=url)
    again = optuna.load_study(study_name="sweep", storage=url)
    there = pickle.loads(pickle_objective(lambda: again, study))()
    assert isinstance(there, ClosureStudy)
    assert copy.deepcopy(there) is there


@pytest.mark.parametrize("name", ["other", "sweep"])
def test_another_study_is_refused_by_name(name: str) -> None:
    study, other = (optuna.create_study(study_name=each) for each in ("sweep", name))

    def objective(trial: BaseTrial) -> float:
        return other.best_value + trial.number

    with pytest.raises(
        SpecError, match=f"objective: it refers to the study '{name}', which is not"
    ):
        pickle_objective(objective, study)
    with pytest.raises(SpecError, match=f"'{name}'"):
        pickle_objective(objective, None)


def test_outside_of_a_trial_there_is_no_study() -> None:
    with pytest.raises(AttributeError, match="within a trial"):
        ClosureStudy().stop()
