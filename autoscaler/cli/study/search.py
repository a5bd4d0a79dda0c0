"""Search of a study file in the form that simulations use."""

from __future__ import annotations

import math
from binascii import crc32
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.domain.errors import SpecError
from autoscaler.domain.study import MethodOption, StudySpec
from autoscaler.simulator.studies.searches import AsynchronousHalving, SynchronousHalving

# Pruners that decide by values: no trial is simulated as pruned. Optuna's default is median.
_VALUE_PRUNERS = {None: "median", "median": "median"} | {
    name: name for name in ("percentile", "threshold", "wilcoxon", "patient")
}


@dataclass(frozen=True, slots=True)
class PlannedSearch:
    """Search to simulate.

    Attributes:
        rule: halving rule.
        rungs: steps at which trials are compared; the last is the end of a trial.
        pruner: name of the pruner, in words.
        remarks: differences from the real search, in words.
    """

    rule: SynchronousHalving | AsynchronousHalving
    rungs: tuple[float, ...]
    pruner: str
    remarks: tuple[str, ...] = ()


def steps_by_pruner(spec: StudySpec) -> int | None:
    """Return the pruner's option `max_resource`, the steps of a whole trial; None if not set."""
    options = spec.pruner.options if spec.pruner is not None else {}
    most = options.get("max_resource")
    return most if isinstance(most, int) else None


def search_of_file(spec: StudySpec, trials: int, steps: int) -> PlannedSearch:
    """Return the search of a study with `trials` trials of `steps` steps each.

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
    return _unpruned(spec, name, trials, steps)


def _synchronous(options: Mapping[str, MethodOption], trials: int, steps: int) -> PlannedSearch:
    eta, first = (
        _integer_option(options, "reduction_factor", 3),
        _integer_option(options, "min_resource", 1),
    )
    group = _integer_option(options, "trials", trials)
    rungs = tuple(float(first * eta**n) for n in range(64) if first * eta**n < steps)
    rule = SynchronousHalving(trials, eta, (*rungs, float(steps)))
    remarks: tuple[str, ...] = ()
    if trials > group:
        remarks = (f"groups of {group} are simulated as one of {trials}",)
    return PlannedSearch(rule, rule.rungs, "synchronous_halving", remarks)


def _successive(
    spec: StudySpec, options: Mapping[str, MethodOption], trials: int, steps: int
) -> PlannedSearch:
    eta = _integer_option(options, "reduction_factor", 4)
    skipped_rungs = _integer_option(options, "min_early_stopping_rate", 0)
    bootstrap = _integer_option(options, "bootstrap_count", 0)
    first = _integer_option(options, "min_resource", max(steps // 100, 1))
    remarks: tuple[str, ...] = ()
    if not isinstance(options.get("min_resource"), int):
        remarks = (
            "min_resource: auto prunes no trial until one is complete, which is not simulated",
        )
    rule = AsynchronousHalving(
        trials, float(first * eta**skipped_rungs), eta, spec.at_once, bootstrap=bootstrap
    )
    return PlannedSearch(rule, _rungs(rule, steps), "successive_halving", remarks)


def _hyperband(
    spec: StudySpec, options: Mapping[str, MethodOption], trials: int, steps: int
) -> PlannedSearch:
    """Return the search with the brackets that Optuna assigns to the trials of this study.

    Source: Optuna's HyperbandPruner: budgets of brackets, and a checksum of name and number.

    Raises:
        SpecError: the steps end before the first rung.
    """
    eta, first = (
        _integer_option(options, "reduction_factor", 3),
        _integer_option(options, "min_resource", 1),
    )
    most = _integer_option(options, "max_resource", steps + 1)
    if first > most:
        raise SpecError(f"{most} steps end before the first rung, at {first}", "pruner")
    count = math.floor(math.log(most / first, eta)) + 1
    shares = [math.ceil(count * eta**rest / (rest + 1)) for rest in reversed(range(count))]
    brackets = tuple(_bracket(f"{spec.name}_{number}", shares) for number in range(trials))
    remarks: tuple[str, ...] = ()
    if not isinstance(options.get("max_resource"), int):
        remarks = (
            "max_resource: auto prunes no trial until one is complete, which is not simulated",
        )
    bootstrap = _integer_option(options, "bootstrap_count", 0)
    rule = AsynchronousHalving(trials, float(first), eta, spec.at_once, brackets, bootstrap)
    words = " + ".join(str(brackets.count(bracket)) for bracket in range(count))
    return PlannedSearch(rule, _rungs(rule, steps), f"hyperband ({words} in brackets)", remarks)


def _bracket(name: str, shares: list[int]) -> int:
    remainder = crc32(name.encode()) % sum(shares)
    for index, share in enumerate(shares):
        remainder -= share
        if remainder < 0:
            return index
    return len(shares) - 1


def _unpruned(spec: StudySpec, name: str | None, trials: int, steps: int) -> PlannedSearch:
    rule = AsynchronousHalving(trials, float(steps), 2, spec.at_once)
    remarks: tuple[str, ...] = ()
    pruner = _VALUE_PRUNERS.get(name)
    if pruner is not None:
        remarks = (
            f"{pruner} prunes by values: all trials are simulated to their ends, which is the "
            "highest cost possible",
        )
    return PlannedSearch(rule, (float(steps),), pruner or "none", remarks)


def _rungs(rule: AsynchronousHalving, steps: int) -> tuple[float, ...]:
    rungs = (rule.min_resource * rule.eta**number for number in range(64))
    return (*(rung for rung in rungs if rung < steps), float(steps))


def _integer_option(options: Mapping[str, MethodOption], name: str, default: int) -> int:
    value = options.get(name)
    return value if isinstance(value, int) else default
