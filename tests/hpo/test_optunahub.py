"""The packages of examples/optunahub, as the registry loads them."""

from __future__ import annotations

import importlib.util
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import optuna
import pytest
import yaml
from optuna.trial import TrialState, create_trial

import hpo

REGISTRY = Path(__file__).parents[2] / "examples" / "optunahub"
PACKAGES = ("callbacks/reserve", "pruners/synchronous_halving")
START = datetime(2026, 1, 1)


def load(package: str) -> ModuleType:
    """Load a package as `optunahub.load_local_module` does."""
    name = f"optunahub_registry.package.{package.replace('/', '.')}"
    spec = importlib.util.spec_from_file_location(name, REGISTRY / package / "__init__.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_has_what_the_registry_asks_for(package: str) -> None:
    folder = REGISTRY / package
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    assert {"author", "title", "description", "tags", "optuna_versions", "license"} <= set(
        yaml.safe_load(front)
    )
    assert {"## Abstract", "## APIs", "## Example"} <= set(body.splitlines())
    assert (folder / "LICENSE").exists()
    assert all(hasattr(load(package), name) for name in load(package).__all__)


def test_optunahub_loads_them() -> None:
    optunahub = pytest.importorskip("optunahub")
    module = optunahub.load_local_module(
        "pruners/synchronous_halving", registry_root=str(REGISTRY)
    )
    assert module.SynchronousHalvingPruner is hpo.SynchronousHalvingPruner


class Clock:
    """A clock that a test sets, in seconds since the start."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> datetime:
        return START + timedelta(seconds=self.seconds)


def is_stopped_with(clock: Clock, spans: list[tuple[float, float | None]], **limits: Any) -> bool:
    """Return whether the callback stops a study of such trials; an end of None: it runs."""
    callback = load("callbacks/reserve").ReserveCallback(now=lambda: START, **limits)
    callback._now = clock
    study = optuna.create_study()
    for begun, ended in spans:
        trial = create_trial(
            state=TrialState.RUNNING if ended is None else TrialState.COMPLETE,
            value=None if ended is None else 0.0,
        )
        trial.datetime_start = START + timedelta(seconds=begun)
        trial.datetime_complete = None if ended is None else START + timedelta(seconds=ended)
        study.add_trial(trial)
    study._thread_local.in_optimize_loop = True
    callback(study, study.trials[0])
    return study._stop_flag


def test_no_trial_begins_that_the_deadline_would_cut_off() -> None:
    clock = Clock()
    spans: list[tuple[float, float | None]] = [(0.0, 100.0), (0.0, 100.0)]
    clock.seconds = 299.0
    assert not is_stopped_with(clock, spans, timeout_seconds=400.0)
    clock.seconds = 301.0
    assert is_stopped_with(clock, spans, timeout_seconds=400.0)


def test_the_money_that_running_trials_need_is_kept() -> None:
    clock = Clock()
    clock.seconds = 150.0
    spans: list[tuple[float, float | None]] = [(0.0, 100.0), (100.0, None)]
    # $1 a second: 150 are spent, 50 are needed by the trial that runs, 100 by one more.
    assert not is_stopped_with(clock, spans, budget_usd=301.0, usd_per_hour=3600.0)
    assert is_stopped_with(clock, spans, budget_usd=299.0, usd_per_hour=3600.0)


def test_a_study_of_which_nothing_is_known_goes_on() -> None:
    clock = Clock()
    clock.seconds = 1e6
    assert not is_stopped_with(clock, [(0.0, None)], timeout_seconds=1.0)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "set timeout_seconds, or budget_usd"),
        ({"budget_usd": 1.0}, "need each other"),
        ({"timeout_seconds": 0.0}, "timeout_seconds=0.0 must be more than 0"),
        ({"timeout_seconds": 1.0, "quantile": 1.5}, "quantile=1.5"),
    ],
)
def test_bad_limits_are_named(limits: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load("callbacks/reserve").ReserveCallback(**limits)


def test_a_plain_study_stops_by_itself() -> None:
    reserve = load("callbacks/reserve").ReserveCallback(timeout_seconds=1e-9)
    study = optuna.create_study()
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), 5, callbacks=[reserve])
    assert len(study.trials) == 1
