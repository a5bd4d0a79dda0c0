"""How the study of a file searches, as simulations have it."""

from __future__ import annotations

import math
from binascii import crc32
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.domain.errors import SpecError
from autoscaler.domain.study import MethodOption, StudySpec
from autoscaler.simulator.searches import AsynchronousHalving, SynchronousHalving

# Pruners by which none of the trials may be known to end early.
_PRUNED_BY_VALUES = {None: "median", "median": "median"} | {
    name: name for name in ("percentile", "threshold", "wilcoxon", "patient")
}


@dataclass(frozen=True, slots=True)
class PlannedSearch:
    """A rule, the steps at which trials are compared, and what has to be said of it.

    The last of `rungs` is the end.
    """

    rule: SynchronousHalving | AsynchronousHalving
    rungs: tuple[float, ...]
    pruner: str
    remarks: tuple[str, ...] = ()


def steps_by_pruner(spec: StudySpec) -> int | None:
    """The steps of a trial that goes all the way, if the pruner's options say it."""
    options = spec.pruner.options if spec.pruner is not None else {}
    most = options.get("max_resource")
    return most if isinstance(most, int) else None


def search_of_file(spec: StudySpec, trials: int, steps: int) -> PlannedSearch:
    """The search of a study, of so many trials of so many steps.

    Raises:
        SpecError: the steps end before the first rung.
    """
    name = None if spec.pruner is None else spec.pruner.name
    options = {} if spec.pruner is None else dict(spec.pruner.options)
    if name == "synchronous_halving":
        return _synchronous(options, trials, steps)
    if name == "successive_halving":
        return _successive(spec, options, trials, steps)
    if name == "hyperband":
        return _hyperband(spec, options, trials, steps)
    return _to_the_end(spec, name, trials, steps)


def _synchronous(options: Mapping[str, MethodOption], trials: int, steps: int) -> PlannedSearch:
    eta, first = _whole(options, "reduction_factor", 3), _whole(options, "min_resource", 1)
    group = _whole(options, "trials", trials)
    rungs = tuple(float(first * eta**n) for n in range(64) if first * eta**n < steps)
    rule = SynchronousHalving(trials, eta, (*rungs, float(steps)))
    remarks: tuple[str, ...] = ()
    if trials > group:
        remarks = (f"groups of {group} are simulated as one of {trials}",)
    return PlannedSearch(rule, rule.rungs, "synchronous_halving", remarks)


def _successive(
    spec: StudySpec, options: Mapping[str, MethodOption], trials: int, steps: int
) -> PlannedSearch:
    eta = _whole(options, "reduction_factor", 4)
    spared = _whole(options, "min_early_stopping_rate", 0)
    bootstrap = _whole(options, "bootstrap_count", 0)
    first = _whole(options, "min_resource", max(steps // 100, 1))
    remarks: tuple[str, ...] = ()
    if not isinstance(options.get("min_resource"), int):
        remarks = (
            "min_resource: auto prunes nobody until a trial is complete, which is not simulated",
        )
    rule = AsynchronousHalving(
        trials, float(first * eta**spared), eta, spec.at_once, bootstrap=bootstrap
    )
    return PlannedSearch(rule, _rungs(rule, steps), "successive_halving", remarks)


def _hyperband(
    spec: StudySpec, options: Mapping[str, MethodOption], trials: int, steps: int
) -> PlannedSearch:
    """The brackets that Optuna puts the trials of a study of this name into.

    Source: Optuna's HyperbandPruner: shares of brackets, and a checksum of name and number.
    """
    eta, first = _whole(options, "reduction_factor", 3), _whole(options, "min_resource", 1)
    most = _whole(options, "max_resource", steps + 1)
    if first > most:
        raise SpecError(f"{most} steps end before the first rung, at {first}", "pruner")
    count = math.floor(math.log(most / first, eta)) + 1
    shares = [math.ceil(count * eta**rest / (rest + 1)) for rest in reversed(range(count))]
    brackets = tuple(_bracket(f"{spec.name}_{number}", shares) for number in range(trials))
    remarks: tuple[str, ...] = ()
    if not isinstance(options.get("max_resource"), int):
        remarks = (
            "max_resource: auto prunes nobody until a trial is complete, which is not simulated",
        )
    bootstrap = _whole(options, "bootstrap_count", 0)
    rule = AsynchronousHalving(trials, float(first), eta, spec.at_once, brackets, bootstrap)
    words = " + ".join(str(brackets.count(each)) for each in range(count))
    return PlannedSearch(rule, _rungs(rule, steps), f"hyperband ({words} in brackets)", remarks)


def _bracket(name: str, shares: list[int]) -> int:
    left = crc32(name.encode()) % sum(shares)
    for place, share in enumerate(shares):
        left -= share
        if left < 0:
            return place
    return len(shares) - 1


def _to_the_end(spec: StudySpec, name: str | None, trials: int, steps: int) -> PlannedSearch:
    rule = AsynchronousHalving(trials, float(steps), 2, spec.at_once)
    remarks: tuple[str, ...] = ()
    by_values = _PRUNED_BY_VALUES.get(name)
    if by_values is not None:
        remarks = (
            f"whom {by_values} prunes depends on values: all are taken to go to their ends, which "
            "is the most that it can cost",
        )
    return PlannedSearch(rule, (float(steps),), by_values or "none", remarks)


def _rungs(rule: AsynchronousHalving, steps: int) -> tuple[float, ...]:
    every = (rule.min_resource * rule.eta**rung for rung in range(64))
    return (*(rung for rung in every if rung < steps), float(steps))


def _whole(options: Mapping[str, MethodOption], name: str, default: int) -> int:
    value = options.get(name)
    return value if isinstance(value, int) else default
