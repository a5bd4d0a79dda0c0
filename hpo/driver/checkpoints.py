"""Removal of checkpoints of ended trials."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import optuna
from optuna.trial import FrozenTrial

from autoscaler.domain.errors import CastorError
from hpo.protocol import attributes
from hpo.protocol.attributes import checkpoint_name

if TYPE_CHECKING:
    from autoscaler.wire.client import StudyClient

_log = logging.getLogger(__name__)


def removable_checkpoints(study: optuna.Study) -> tuple[str, ...]:
    """Return the checkpoint names of ended trials, except the best trial or the Pareto front."""
    trials = study.get_trials(deepcopy=False)
    best = {trial.number for trial in _best(study)}
    return tuple(
        checkpoint_name(trial.number, trial.datetime_start)
        for trial in trials
        if trial.state.is_finished()
        and trial.number not in best
        and trial.datetime_start is not None
        and attributes.JOB in trial.user_attrs
    )


def remove_checkpoints(study: optuna.Study, study_client: StudyClient) -> None:
    """Remove the checkpoints of ended trials, except the best; log a warning on failure."""
    try:
        removed = study_client.remove_checkpoints(removable_checkpoints(study))
    except CastorError as error:
        _log.warning("checkpoints of trials that have ended stay where they are: %s", error)
        return
    if removed:
        _log.info(
            "checkpoints of trials that have ended are removed (%d), but for the best's; "
            "keep_checkpoints keeps them",
            removed,
        )


def _best(study: optuna.Study) -> list[FrozenTrial]:
    try:
        return study.best_trials if len(study.directions) > 1 else [study.best_trial]
    except ValueError:  # no trial is complete, or none satisfies the constraints
        return []
