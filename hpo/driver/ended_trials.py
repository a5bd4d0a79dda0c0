"""Ended trials: their log messages and their reports to the controller."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import optuna
from optuna.trial import FrozenTrial, TrialState

from autoscaler.domain.study_rules import LONGEST_CAUSE
from autoscaler.domain.text import printable
from autoscaler.domain.trial import TrialEnd, TrialEnding
from hpo.protocol import attributes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """Trial that has ended.

    Attributes:
        frozen: record of the trial.
        error_kinds: names of the classes of the objective's error, most specific first; empty
            without one.
        is_retried: whether the job failed and a retry follows.
        method_error: error of the sampler or pruner that failed the trial; None without one.
    """

    frozen: FrozenTrial
    error_kinds: tuple[str, ...] = ()
    is_retried: bool = False
    method_error: Exception | None = None


def log_trial_end(ended: EndedTrial, study: optuna.Study) -> None:
    """Log the end of a trial and the best trial so far, in Optuna's format."""
    trial = ended.frozen
    match trial.state:
        case TrialState.COMPLETE:
            values = trial.values[0] if len(trial.values) == 1 else trial.values
            noun = "value" if len(trial.values) == 1 else "values"
            _log.info(
                "Trial %d finished with %s: %s and parameters: %s.%s",
                trial.number,
                noun,
                values,
                trial.params,
                _best_text(study),
            )
        case TrialState.PRUNED:
            _log.info("Trial %d %s.", trial.number, _pruned_text(trial))
        case _:
            _log.warning("Trial %d failed: %s", trial.number, _failed_text(ended))


def _best_text(study: optuna.Study) -> str:
    """Return the best trial as text; empty if there is none, or several directions."""
    if len(study.directions) > 1:
        return ""
    try:
        best = study.best_trial
    except ValueError:  # no trial satisfies the constraints
        return ""
    return f" Best is trial {best.number} with value: {best.value}."


def trial_end(job: str, trial: FrozenTrial) -> TrialEnd:
    """Return the report of a trial's end to the controller."""
    match trial.state:
        case TrialState.COMPLETE:
            return TrialEnd(job, TrialEnding.COMPLETE)
        case TrialState.PRUNED:
            return TrialEnd(job, TrialEnding.PRUNED, _pruned_text(trial))
        case _:
            cause = printable(" ".join(failure_cause(trial).split()))
            return TrialEnd(job, TrialEnding.FAILED, cause[:LONGEST_CAUSE] or None)


def _failed_text(ended: EndedTrial) -> str:
    cause = failure_cause(ended.frozen)
    if not ended.is_retried:
        return cause
    return f"its job failed ({cause}); a new trial with its parameters takes its place"


def _pruned_text(trial: FrozenTrial) -> str:
    step = trial.last_step
    return "pruned before its first report" if step is None else f"pruned at step {step}"


def failure_cause(trial: FrozenTrial) -> str:
    """Return the cause of a failed trial."""
    return str(trial.user_attrs.get(attributes.CAUSE, "its cause is not known"))
