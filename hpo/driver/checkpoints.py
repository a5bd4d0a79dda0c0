"""Which checkpoints of a study's trials nobody needs any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import optuna
from optuna.trial import FrozenTrial

from autoscaler.domain.errors import CastorError
from hpo.protocol import attributes
from hpo.protocol.checkpoint_names import name_of_states

if TYPE_CHECKING:  # workers import this module
    from autoscaler.wire.client import StudyClient

_log = logging.getLogger(__name__)


def names_of_ended(study: optuna.Study) -> tuple[str, ...]:
    """The states of trials of ours that have ended, but for the best's, or those of the front."""
    trials = study.get_trials(deepcopy=False)
    best = {trial.number for trial in _best(study)}
    return tuple(
        name_of_states(trial.number, trial.datetime_start)
        for trial in trials
        if trial.state.is_finished()
        and trial.number not in best
        and trial.datetime_start is not None
        and attributes.JOB in trial.user_attrs
    )


def remove_ended(study: optuna.Study, line: StudyClient) -> None:
    """Keep the states of the best trial, and of those that go on."""
    try:
        removed = line.remove_checkpoints(names_of_ended(study))
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
    except ValueError:  # none is complete, or none keeps to the constraints
        return []
