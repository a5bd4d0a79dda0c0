"""What Castor uses of Optuna beyond its public interface, and the check that a release has it.

No other module of this package names a private attribute of Optuna's. The names are those of
Optuna 4.2 to 5.0. `check_release` looks for each of them before a study runs, so that a release
that renames one is refused, in place of rungs that are lost or of `study.stop()` without effect.

What the names mean is assumed too: `Study.ask` begins a trial by
`set_trial_state_values(id, RUNNING)`, `Trial.should_prune` is `pruner.prune(study, frozen trial)`,
and `Study.stop` sets a flag of the study while the thread is in its optimization loop.
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
class HalvingTerms:
    """Parameters of Optuna's successive halving.

    Attributes:
        min_resource: steps to its first rung; None until Optuna has estimated it.
        reduction_factor: the ratio of one rung's steps to those of the rung before.
        min_early_stopping_rate: how many of the first rungs are left out.
    """

    min_resource: int | None
    reduction_factor: int
    min_early_stopping_rate: int


def check_release(study: optuna.Study) -> None:
    """Refuse an Optuna that lacks a private name that Castor uses.

    Raises:
        SpecError: with the names that are missing and the releases that have them.
    """
    looked_at: list[tuple[object, tuple[str, ...]]] = [
        (study, _OF_STUDY),
        (create_trial(value=0.0), _OF_TRIAL),
        (SuccessiveHalvingPruner(min_resource=1), _OF_HALVING),
        (HyperbandPruner(min_resource=1, max_resource=2), _OF_HYPERBAND),
        (IntDistribution(0, 1), _OF_DISTRIBUTION),
    ]
    storage = getattr(study, "_storage", None)
    if type(storage).__name__ == "_CachedStorage":
        looked_at.append((storage, _OF_CACHE))
    missing = [
        f"{type(holder).__name__}.{name}"
        for holder, names in looked_at
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
    """Return the storage that a study is in."""
    return study._storage


@contextmanager
def optimization_loop(study: optuna.Study, storage: Any) -> Iterator[None]:
    """Let a study use another storage, and `study.stop()` work on this thread, for a while."""
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
    """Let no further trial begin, as `Study.stop` does, from any thread."""
    study._stop_flag = True


def is_stopped(study: optuna.Study) -> bool:
    """Return whether `Study.stop` was called since the loop began."""
    return bool(study._stop_flag)


def trial_id(trial: FrozenTrial | Trial) -> int:
    """Return the id of a trial in its storage, which is not its number in its study."""
    return trial._trial_id


def live_trial(study: optuna.Study, frozen: FrozenTrial) -> Trial:
    """Return a trial that is under way, to suggest from and report to."""
    return Trial(study, frozen._trial_id)


def frozen_trial(study: optuna.Study, trial: Trial) -> FrozenTrial:
    """Return a trial as its storage has it now."""
    return study._storage.get_trial(trial._trial_id)


def claim(study: optuna.Study, waiting: FrozenTrial) -> bool:
    """Begin a trial that was enqueued; False if another process has begun it before."""
    try:
        return study._storage.set_trial_state_values(waiting._trial_id, TrialState.RUNNING)
    except RuntimeError:  # it has ended already, in the words of every release
        return False


def holds(distribution: BaseDistribution, value: Any) -> bool:
    """Return whether a value, as an objective sees it, is one of a distribution.

    Raises:
        ValueError: it is no choice of it, or no number.
    """
    return distribution._contains(distribution.to_internal_repr(value))


def set_system_attribute(study: optuna.Study, trial: Trial, key: str, value: Any) -> None:
    """Write an attribute of Optuna's own to a trial."""
    study._storage.set_trial_system_attr(trial._trial_id, key, value)


def database_url(study: optuna.Study) -> str:
    """Return the address of the database that a study is in; empty if it is in none."""
    storage = study._storage
    return str(getattr(getattr(storage, "_backend", storage), "url", ""))


def halving_terms(
    study: optuna.Study, pruner: BasePruner, trial: FrozenTrial
) -> HalvingTerms | None:
    """Return the parameters by which successive halving, or Hyperband's bracket, judges a trial.

    None for another pruner, and for a Hyperband that has not made its brackets yet.
    """
    if isinstance(pruner, HyperbandPruner):
        if not pruner._pruners:
            return None
        pruner = pruner._pruners[pruner._get_bracket_id(study, trial)]
    if not isinstance(pruner, SuccessiveHalvingPruner):
        return None
    return HalvingTerms(
        pruner._min_resource, pruner._reduction_factor, pruner._min_early_stopping_rate
    )
