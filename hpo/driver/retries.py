"""Retries of trials whose job failed, as new trials with the same parameters.

A trial is marked for its retry before it fails, and the retry names the failed trial from its
creation. The next driver therefore enqueues each retry exactly once. Optuna's own retries are not
used: they depend on heartbeats and copy the pruner's attributes, so that rungs count the trial
twice.
"""

from __future__ import annotations

from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from hpo.protocol import attributes


def retry_count(trial: FrozenTrial) -> int:
    """Return the number of retries that led to this trial; 0 for an original trial."""
    return int(trial.user_attrs.get(attributes.RETRIES, 0))


def enqueue_retries(study: optuna.Study) -> None:
    """Enqueue the missing retries of trials that are marked for one."""
    trials = study.get_trials(deepcopy=False)
    retried = {trial.user_attrs.get(attributes.RETRY_OF) for trial in trials}
    for trial in trials:
        needs_retry = trial.state is TrialState.FAIL and attributes.RETRIED in trial.user_attrs
        if needs_retry and trial.number not in retried:
            study.enqueue_trial(trial.params, user_attrs=_retry_attributes(trial))


def first_waiting_retry(study: optuna.Study) -> FrozenTrial | None:
    """Return the oldest enqueued retry that has not begun; None without any."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        if attributes.RETRY_OF in trial.user_attrs:
            return trial
    return None


def _retry_attributes(failed: FrozenTrial) -> dict[str, Any]:
    """Return the user attributes of the retry of a failed trial.

    They are the user's attributes and the reference to the failed trial. The placeholder for the
    job's name lets the next driver recognise the retry if this one dies.
    """
    user_attributes = {
        name: value
        for name, value in failed.user_attrs.items()
        if not name.startswith(attributes.PREFIX)
    }
    return {
        **user_attributes,
        attributes.RETRY_OF: failed.number,
        attributes.RETRIES: failed.user_attrs[attributes.RETRIED],
        attributes.JOB: f"retry-of-{failed.number}",
    }
