"""Counts of ended and open trials, for runs with a total."""

from __future__ import annotations

from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial

from hpo.protocol import attributes


@dataclass(frozen=True, slots=True)
class TrialCounts:
    """Numbers of trials that count towards the study's total.

    A trial and its retries count once.

    Attributes:
        ended: trials that have ended and are not retried.
        open: trials that run or wait for their retry.
    """

    ended: int
    open: int

    def to_begin(self, total: int) -> int:
        """Return how many trials have to begin to reach `total`."""
        return max(total - self.ended - self.open, 0)


def count_trials(study: optuna.Study) -> TrialCounts:
    """Count the trials of a study, without open trials of other programs."""
    trials = study.get_trials(deepcopy=False)
    begun = sum(_counts(trial) and attributes.RETRY_OF not in trial.user_attrs for trial in trials)
    ended = sum(
        trial.state.is_finished() and attributes.RETRIED not in trial.user_attrs
        for trial in trials
    )
    return TrialCounts(ended, max(begun - ended, 0))


def _counts(trial: FrozenTrial) -> bool:
    return trial.state.is_finished() or attributes.JOB in trial.user_attrs
