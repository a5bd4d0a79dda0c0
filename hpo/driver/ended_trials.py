"""Trials that have ended, and how that is said."""

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
    """A trial that has ended, and the kinds of the error that its objective raised, if any.

    `is_retried`: its job failed, and another trial takes its place. `asked_error` is what the
    study's sampler or pruner raised, if the trial failed by that.
    """

    frozen: FrozenTrial
    error_kinds: tuple[str, ...] = ()
    is_retried: bool = False
    asked_error: Exception | None = None


def log_end(ended: EndedTrial, study: optuna.Study) -> None:
    """Log how a trial of a study ended, and the best trial so far, as Optuna prints it."""
    trial = ended.frozen
    match trial.state:
        case TrialState.COMPLETE:
            told = trial.values[0] if len(trial.values) == 1 else trial.values
            noun = "value" if len(trial.values) == 1 else "values"
            _log.info(
                "Trial %d finished with %s: %s and parameters: %s.%s",
                trial.number,
                noun,
                told,
                trial.params,
                _best_text(study),
            )
        case TrialState.PRUNED:
            _log.info("Trial %d %s.", trial.number, _pruned_text(trial))
        case _:
            _log.warning("Trial %d failed: %s", trial.number, _failed_text(ended))


def _best_text(study: optuna.Study) -> str:
    """Return the best trial of a study in words; nothing where there is none, or several."""
    if len(study.directions) > 1:
        return ""
    try:
        best = study.best_trial
    except ValueError:  # no trial keeps to the constraints
        return ""
    return f" Best is trial {best.number} with value: {best.value}."


def end_of(job: str, trial: FrozenTrial) -> TrialEnd:
    """Return the end of a trial as the controller is told it."""
    match trial.state:
        case TrialState.COMPLETE:
            return TrialEnd(job, TrialEnding.COMPLETE)
        case TrialState.PRUNED:
            return TrialEnd(job, TrialEnding.PRUNED, _pruned_text(trial))
        case _:
            cause = printable(" ".join(cause_of(trial).split()))
            return TrialEnd(job, TrialEnding.FAILED, cause[:LONGEST_CAUSE] or None)


def _failed_text(ended: EndedTrial) -> str:
    cause = cause_of(ended.frozen)
    if not ended.is_retried:
        return cause
    return f"its job failed ({cause}); a new trial with its parameters takes its place"


def _pruned_text(trial: FrozenTrial) -> str:
    step = trial.last_step
    return "pruned before its first report" if step is None else f"pruned at step {step}"


def cause_of(trial: FrozenTrial) -> str:
    """Why a trial failed."""
    return str(trial.user_attrs.get(attributes.CAUSE, "its cause is not known"))
