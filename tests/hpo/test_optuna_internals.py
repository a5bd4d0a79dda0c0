"""The contract with Optuna: its private names that Castor uses, in the installed release."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.pruners import HyperbandPruner, MedianPruner, SuccessiveHalvingPruner
from optuna.trial import TrialState

from autoscaler.domain.errors import SpecError
from hpo import optuna_internals
from hpo.optuna_internals import HalvingSettings
from hpo.runs.optimize import optimize
from tests.hpo.objectives import curve


def test_the_installed_release_has_every_name(tmp_path: Path) -> None:
    optuna_internals.check_release(optuna.create_study())
    optuna_internals.check_release(optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db"))


def test_a_release_without_a_name_is_refused_with_those_that_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = optuna.create_study()
    del study._stop_flag
    monkeypatch.delattr(HyperbandPruner, "_get_bracket_id")
    with pytest.raises(SpecError) as error:
        optuna_internals.check_release(study)
    assert "Study._stop_flag, HyperbandPruner._get_bracket_id" in str(error.value)
    assert optuna_internals.WORKING_RELEASES in str(error.value)


def test_a_storage_whose_database_has_another_name_is_refused(tmp_path: Path) -> None:
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db")
    del study._storage._backend  # type: ignore[attr-defined]
    with pytest.raises(SpecError, match=r"_CachedStorage\._backend"):
        optuna_internals.check_release(study)


def test_a_study_is_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HyperbandPruner, "_get_bracket_id")
    study = optuna.create_study()
    with pytest.raises(SpecError, match=r"optuna: .*install a release from"):
        optimize(study, curve, n_trials=1)
    assert not study.trials and not study.user_attrs


def test_a_study_stops_inside_the_loop_alone() -> None:
    study = optuna.create_study()
    storage = optuna_internals.storage_of(study)
    with optuna_internals.optimization_loop(study, storage):
        assert not optuna_internals.is_stopped(study)
        study.stop()
        assert optuna_internals.is_stopped(study)
    assert not optuna_internals.is_stopped(study)
    assert optuna_internals.storage_of(study) is storage
    with pytest.raises(RuntimeError):
        study.stop()


def test_a_waiting_trial_is_claimed_once() -> None:
    study = optuna.create_study()
    study.enqueue_trial({"x": 0.5})
    (waiting,) = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
    assert optuna_internals.claim(study, waiting)
    assert not optuna_internals.claim(study, waiting)
    trial = optuna_internals.live_trial(study, waiting)
    assert trial.suggest_float("x", 0.0, 1.0) == 0.5
    assert optuna_internals.frozen_trial(study, trial).state is TrialState.RUNNING
    study.tell(trial, 1.0)
    assert not optuna_internals.claim(study, waiting)


def test_system_attributes_are_written() -> None:
    study = optuna.create_study()
    trial = study.ask()
    optuna_internals.set_system_attribute(study, trial, "scores", [1.0, 2.0])
    frozen = optuna_internals.frozen_trial(study, trial)
    assert frozen.system_attrs["scores"] == [1.0, 2.0]
    assert optuna_internals.trial_id(frozen) == optuna_internals.trial_id(trial)


def test_the_terms_of_halving_are_those_it_was_made_with() -> None:
    study = optuna.create_study()
    trial = optuna_internals.frozen_trial(study, study.ask())
    pruner = SuccessiveHalvingPruner(min_resource=2, reduction_factor=3, min_early_stopping_rate=1)
    assert optuna_internals.halving_settings(study, pruner, trial) == HalvingSettings(2, 3, 1)
    automatic = SuccessiveHalvingPruner()
    assert optuna_internals.halving_settings(study, automatic, trial) == HalvingSettings(
        None, 4, 0
    )
    assert optuna_internals.halving_settings(study, MedianPruner(), trial) is None


def test_a_trial_of_hyperband_has_the_terms_of_its_bracket() -> None:
    pruner = HyperbandPruner(min_resource=1, max_resource=9, reduction_factor=3)
    study = optuna.create_study(pruner=pruner)
    first = optuna_internals.frozen_trial(study, study.ask())
    assert optuna_internals.halving_settings(study, pruner, first) is None  # no brackets yet
    for _ in range(8):
        trial = study.ask()
        trial.report(1.0, 1)
        trial.should_prune()
    rates = set()
    for frozen in study.get_trials():
        found = optuna_internals.halving_settings(study, pruner, frozen)
        assert found is not None and found.reduction_factor == 3
        rates.add(found.min_early_stopping_rate)
    assert rates <= {0, 1, 2} and len(rates) > 1


def test_a_study_in_a_database_tells_its_address(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    assert optuna_internals.database_url(optuna.create_study(storage=url)) == url
    rdb = optuna.storages.RDBStorage(url)
    study = optuna.load_study(study_name=None, storage=rdb)
    assert optuna_internals.database_url(study) == url
    assert optuna_internals.database_url(optuna.create_study()) == ""
