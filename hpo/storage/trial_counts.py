"""How many trials of a study are there, where a total is wanted."""

from __future__ import annotations

from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial

from hpo.protocol import attributes


@dataclass(frozen=True, slots=True)
class TrialTotals:
    """Trials of a study that count towards its total; a trial and its retries are one.

    Attributes:
        ended: those that have ended, and are not to be retried.
        open: those that run, or wait for their retry.
    """

    ended: int
    open: int

    def to_begin(self, total: int) -> int:
        """Return how many trials are to begin so that the study comes to `total`."""
        return max(total - self.ended - self.open, 0)


def totals_of(study: optuna.Study) -> TrialTotals:
    """Count the trials of a study. Trials that others run and that have not ended count not."""
    trials = study.get_trials(deepcopy=False)
    begun = sum(_counts(trial) and attributes.RETRY_OF not in trial.user_attrs for trial in trials)
    ended = sum(
        trial.state.is_finished() and attributes.RETRIED not in trial.user_attrs
        for trial in trials
    )
    return TrialTotals(ended, max(begun - ended, 0))


def _counts(trial: FrozenTrial) -> bool:
    return trial.state.is_finished() or attributes.JOB in trial.user_attrs
