"""Limits of a run: trials, time, and tolerated failures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from optuna.trial import TrialState

from hpo.driver.ended_trials import EndedTrial, failure_cause

ANY_ERROR: Final = f"{Exception.__module__}.{Exception.__qualname__}"


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of one run of a study's driver.

    Attributes:
        trials: trials to begin in this run; None for no limit.
        at_once: maximum of concurrent trials; None for as many as get an instance.
        timeout_seconds: seconds after which no trial begins; None for no limit.
        catch: names of error classes that fail their trial only.
        retries: maximum retries of a trial whose job fails, beyond `trials`.
        max_failures: failed trials after which no trial begins; None for no limit.
        shares_processes: whether a process may run several short trials.
    """

    trials: int | None = None
    at_once: int | None = None
    timeout_seconds: float | None = None
    catch: frozenset[str] = frozenset()
    retries: int = 1
    max_failures: int | None = None
    shares_processes: bool = True


def error_names(kind: type[Exception]) -> tuple[str, str]:
    """Return the names under which an error class may be reported.

    A class defined inside a function or class of a script is pickled by value and loses its
    qualified name.
    """
    return f"{kind.__module__}.{kind.__qualname__}", f"{kind.__module__}.{kind.__name__}"


def is_caught(ended: EndedTrial, catch: Iterable[str]) -> bool:
    """Return whether the error of a trial's objective is of a class in `catch`.

    Args:
        ended: the trial; one without an error of its objective counts as caught.
        catch: class names, with their module (`torch.OutOfMemoryError`) or without it.
    """
    names = set(ended.error_kinds) | {kind.rpartition(".")[2] for kind in ended.error_kinds}
    return not names or not names.isdisjoint(catch)


def counts_as_failure(ended: EndedTrial) -> bool:
    """Return whether a trial failed and has no retry."""
    return ended.frozen.state is TrialState.FAIL and not ended.is_retried


def ends_study(
    ended: EndedTrial, catch: Iterable[str], failures: int, max_failures: int | None
) -> bool:
    """Return whether no further trial may begin after this one.

    Args:
        ended: the trial.
        catch: names of the error classes that fail their trial only.
        failures: failed trials of this run, including this one.
        max_failures: tolerated failures; None for no limit to those in `catch`.
    """
    if not is_caught(ended, catch):
        return True
    is_beyond = max_failures is not None and failures > max_failures
    return is_beyond and counts_as_failure(ended)


def fatal_message(ended: EndedTrial, catch: Iterable[str], max_failures: int | None) -> str:
    """Return the cause of a failure that ends the study, and the option that tolerates it."""
    failure_text = f"trial {ended.frozen.number} failed: {failure_cause(ended.frozen)}"
    if is_caught(ended, catch):
        return (
            f"{failure_text}: more than max_failures={max_failures} trials of this run have failed"
        )
    return (
        f"{failure_text}: to continue after such failures, name the error in catch "
        "(in a study file: catch: all, or max_failures: 5)"
    )
