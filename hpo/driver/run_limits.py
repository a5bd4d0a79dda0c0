"""Failed trials that a study tolerates, and the message where a failure ends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from optuna.trial import TrialState

from hpo.driver.ended_trials import EndedTrial, cause_of

ANY_ERROR: Final = f"{Exception.__module__}.{Exception.__qualname__}"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a study is to do: trials that begin in this run, how many at once, how long.

    `trials` None: until it is stopped. `at_once` None: as many as get an instance. After
    `timeout_seconds` none begins any more, and those that run go on to their ends. So it is after
    an error of an objective that is not in `catch`, and after more than `max_failures` failed
    trials. A trial whose job fails is retried up to `retries` times beyond the `trials`.
    `shares_processes`: short trials may follow each other in one process.
    """

    trials: int | None = None
    at_once: int | None = None
    timeout_seconds: float | None = None
    catch: frozenset[str] = frozenset()
    retries: int = 1
    max_failures: int | None = None
    shares_processes: bool = True


def error_names(kind: type[Exception]) -> tuple[str, str]:
    """Return the names by which an error of a class may be reported.

    A class inside a class or a function of a script is pickled by value, and has lost their names
    on an instance.
    """
    return f"{kind.__module__}.{kind.__qualname__}", f"{kind.__module__}.{kind.__name__}"


def is_caught(ended: EndedTrial, catch: Iterable[str]) -> bool:
    """Return whether the error of a trial's objective is of a class in `catch`.

    Args:
        ended: the trial; one without an error of its objective counts as caught.
        catch: names of classes, with their module (`torch.OutOfMemoryError`) or without it.
    """
    names = set(ended.error_kinds) | {kind.rpartition(".")[2] for kind in ended.error_kinds}
    return not names or not names.isdisjoint(catch)


def counts_as_failure(ended: EndedTrial) -> bool:
    """Return whether a trial failed, and no retry takes its place."""
    return ended.frozen.state is TrialState.FAIL and not ended.is_retried


def ends_study(
    ended: EndedTrial, catch: Iterable[str], failures: int, max_failures: int | None
) -> bool:
    """Return whether no further trial is to begin after this one.

    Args:
        ended: the trial.
        catch: names of the error classes that fail their trial only.
        failures: failed trials of this run, this one included.
        max_failures: failed trials that are tolerated; None: any number of those in `catch`.
    """
    if not is_caught(ended, catch):
        return True
    is_beyond = max_failures is not None and failures > max_failures
    return is_beyond and counts_as_failure(ended)


def fatal_message(ended: EndedTrial, catch: Iterable[str], max_failures: int | None) -> str:
    """Return why a study ends with a failed trial, and how to go on after such trials."""
    failed = f"trial {ended.frozen.number} failed: {cause_of(ended.frozen)}"
    if is_caught(ended, catch):
        return f"{failed}: more than max_failures={max_failures} trials of this run have failed"
    return (
        f"{failed}: to go on after such trials, name the error in catch "
        "(in a study file: catch: all, or max_failures: 5)"
    )
