"""Trials that have ended, and how that is said."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from autoscaler.domain.study_rules import LONGEST_CAUSE
from autoscaler.domain.text import printable
from autoscaler.domain.trial import TrialEnd, TrialEnding
from hpo import attributes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that has ended, and the kinds of the error that its objective raised, if any.

    `is_retried`: its job failed, and another trial takes its place.
    """

    frozen: FrozenTrial
    error_kinds: tuple[str, ...] = ()
    is_retried: bool = False


def log_end(ended: EndedTrial) -> None:
    """Say how a trial ended, as Optuna says it."""
    trial = ended.frozen
    match trial.state:
        case TrialState.COMPLETE:
            values = ", ".join(str(value) for value in trial.values)
            _log.info("trial %d: %s with %s", trial.number, values, trial.params)
        case TrialState.PRUNED:
            _log.info("trial %d was %s", trial.number, _pruned_text(trial))
        case _:
            again = ", and is begun again as another trial" if ended.is_retried else ""
            _log.warning("trial %d failed: %s%s", trial.number, cause_of(trial), again)


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


def _pruned_text(trial: FrozenTrial) -> str:
    step = trial.last_step
    return "pruned before its first report" if step is None else f"pruned at step {step}"


def cause_of(trial: FrozenTrial) -> str:
    """Why a trial failed."""
    return str(trial.user_attrs.get(attributes.CAUSE, "its cause is not known"))
