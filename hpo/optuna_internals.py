"""Private names of Optuna that Castor uses, and a check that a release has them.

Only this module names private attributes of Optuna. The names are those of Optuna 4.2 to 5.0.
`check_release` looks for them before a study runs, so that a release that renames one is refused.

The module also assumes this behaviour: `Study.ask` begins a trial by `set_trial_state_values(id,
RUNNING)`. `Trial.should_prune` is `pruner.prune(study, frozen trial)`. `Study.stop` sets a flag of
the study while the thread is in its optimization loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.pruners import BasePruner, HyperbandPruner, SuccessiveHalvingPruner
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from autoscaler.domain.errors import SpecError

WORKING_RELEASES: Final = "4.2 to 5.0"

_OF_STUDY = ("_storage", "_stop_flag", "_thread_local")
_OF_TRIAL = ("_trial_id",)
_OF_HALVING = ("_min_resource", "_reduction_factor", "_min_early_stopping_rate")
_OF_HYPERBAND = ("_pruners", "_get_bracket_id")
_OF_CACHE = ("_backend",)
_OF_DISTRIBUTION = ("_contains",)
# The system attribute of a trial that was enqueued: its parameters.
FIXED_PARAMETERS: Final = "fixed_params"


@dataclass(frozen=True, slots=True)
class HalvingSettings:
    """Parameters of Optuna's successive halving.

    Attributes:
        min_resource: steps to the first rung; None until Optuna has estimated them.
        reduction_factor: ratio of the steps of one rung to those of the rung before.
        min_early_stopping_rate: number of initial rungs that are skipped.
    """

    min_resource: int | None
    reduction_factor: int
    min_early_stopping_rate: int


def check_release(study: optuna.Study) -> None:
    """Raise if this Optuna release lacks a private name that Castor uses.

    Raises:
        SpecError: names are missing; the message lists them and the supported releases.
    """
    checked: list[tuple[object, tuple[str, ...]]] = [
        (study, _OF_STUDY),
        (create_trial(value=0.0), _OF_TRIAL),
        (SuccessiveHalvingPruner(min_resource=1), _OF_HALVING),
        (HyperbandPruner(min_resource=1, max_resource=2), _OF_HYPERBAND),
        (IntDistribution(0, 1), _OF_DISTRIBUTION),
    ]
    storage = getattr(study, "_storage", None)
    if type(storage).__name__ == "_CachedStorage":
        checked.append((storage, _OF_CACHE))
    missing = [
        f"{type(holder).__name__}.{name}"
        for holder, names in checked
        for name in names
        if not hasattr(holder, name)
    ]
    if missing:
        raise SpecError(
            f"Optuna {optuna.__version__} has no {', '.join(missing)}, which Castor uses: install "
            f"a release from {WORKING_RELEASES}, or a newer Castor",
            "optuna",
        )


def storage_of(study: optuna.Study) -> BaseStorage:
    """Return the storage of a study."""
    return study._storage


@contextmanager
def optimization_loop(study: optuna.Study, storage: Any) -> Iterator[None]:
    """Run the body with another storage and with `study.stop()` enabled on this thread."""
    before = study._storage
    study._storage = storage
    study._stop_flag = False
    study._thread_local.in_optimize_loop = True
    try:
        yield
    finally:
        study._thread_local.in_optimize_loop = False
        study._stop_flag = False
        study._storage = before


def stop(study: optuna.Study) -> None:
    """Request that no further trial begins, as `Study.stop` does; works from any thread."""
    study._stop_flag = True


def is_stopped(study: optuna.Study) -> bool:
    """Return whether `Study.stop` was called since the loop began."""
    return bool(study._stop_flag)


def trial_id(trial: FrozenTrial | Trial) -> int:
    """Return the id of a trial in its storage; it differs from the trial's number in the study."""
    return trial._trial_id


def live_trial(study: optuna.Study, frozen: FrozenTrial) -> Trial:
    """Return a running trial as an object to suggest from and report to."""
    return Trial(study, frozen._trial_id)


def frozen_trial(study: optuna.Study, trial: Trial) -> FrozenTrial:
    """Return the current record of a trial in its storage."""
    return study._storage.get_trial(trial._trial_id)


def claim(study: optuna.Study, waiting: FrozenTrial) -> bool:
    """Begin an enqueued trial; return False if another process has begun it already."""
    try:
        return study._storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING)
    except RuntimeError:  # the trial has ended already
        return False


def holds(distribution: BaseDistribution, value: Any) -> bool:
    """Return whether a distribution contains a value in its external form.

    Raises:
        ValueError: the value is no choice of the distribution, or no number.
    """
    return distribution._contains(distribution.to_internal_repr(value))


def set_system_attribute(study: optuna.Study, trial: Trial, key: str, value: Any) -> None:
    """Write a system attribute of Optuna to a trial."""
    study._storage.set_trial_system_attr(trial._trial_id, key, value)


def database_url(study: optuna.Study) -> str:
    """Return the URL of the database of a study; empty for other storages."""
    storage = study._storage
    return str(getattr(getattr(storage, "_backend", storage), "url", ""))


def halving_settings(
    study: optuna.Study, pruner: BasePruner, trial: FrozenTrial
) -> HalvingSettings | None:
    """Return the successive-halving parameters that apply to a trial.

    For Hyperband they are those of the trial's bracket. The result is None for other pruners, and
    for a Hyperband pruner that has not made its brackets yet.
    """
    if isinstance(pruner, HyperbandPruner):
        if not pruner._pruners:
            return None
        pruner = pruner._pruners[pruner._get_bracket_id(study, trial)]
    if not isinstance(pruner, SuccessiveHalvingPruner):
        return None
    return HalvingSettings(
        pruner._min_resource, pruner._reduction_factor, pruner._min_early_stopping_rate
    )
