"""Trials whose job failed, begun again as new trials with the same parameters.

A trial that is to be retried is marked before it fails, and its retry names it from the moment it
is there: whoever drives the study next finds what is owed, and nothing twice. Optuna's own retries
are not used: they come from heartbeats, and pass on what pruners noted of the failed trial, which
then counts twice in its rungs.
"""

from __future__ import annotations

from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from hpo.protocol import attributes


def retries_before(trial: FrozenTrial) -> int:
    """How many retries have led to this trial; 0 for one that is none itself."""
    return int(trial.user_attrs.get(attributes.RETRIES, 0))


def enqueue_owed(study: optuna.Study) -> None:
    """Enqueue a retry of each trial that is owed one and has none yet."""
    trials = study.get_trials(deepcopy=False)
    retried = {trial.user_attrs.get(attributes.RETRY_OF) for trial in trials}
    for trial in trials:
        is_owed = trial.state is TrialState.FAIL and attributes.RETRIED in trial.user_attrs
        if is_owed and trial.number not in retried:
            study.enqueue_trial(trial.params, user_attrs=_of_retry(trial))


def first_waiting(study: optuna.Study) -> FrozenTrial | None:
    """The retry that was enqueued first and has not begun; None if there is none."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        if attributes.RETRY_OF in trial.user_attrs:
            return trial
    return None


def _of_retry(failed: FrozenTrial) -> dict[str, Any]:
    """The user attributes of its retry: the user's own, and what it is a retry of.

    It has a job's name from the start, of one that never was: if its driver dies as it begins it,
    the next one knows that it is ours, and begins it.
    """
    own = {
        name: value
        for name, value in failed.user_attrs.items()
        if not name.startswith(attributes.PREFIX)
    }
    return {
        **own,
        attributes.RETRY_OF: failed.number,
        attributes.RETRIES: failed.user_attrs[attributes.RETRIED],
        attributes.JOB: f"retry-of-{failed.number}",
    }
