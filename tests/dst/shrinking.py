"""Smallest set of faults with which a seed still breaks the same invariant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.dst.scenario import Fault, Scenario

Run = Callable[[Scenario], str | None]


def invariant_of(violation: str) -> str:
    """Return the name of the invariant in the text of a violation."""
    return violation.partition(":")[0]


def shrunk(scenario: Scenario, violation: str, run: Run) -> tuple[Scenario, str]:
    """Return the scenario with as few faults as break the same invariant, and its violation.

    Faults are dropped by halves, quarters and so on, then one by one, until none can be.
    """
    faults = scenario.faults
    size = max(len(faults) // 2, 1)
    while faults:
        smaller = _without_a_part(scenario, faults, size, violation, run)
        if smaller is not None:
            faults, violation = smaller
        elif size == 1:
            break
        else:
            size = max(size // 2, 1)
    return replace(scenario, faults=faults), violation


def _without_a_part(
    scenario: Scenario, faults: tuple[Fault, ...], size: int, violation: str, run: Run
) -> tuple[tuple[Fault, ...], str] | None:
    """Return the faults without `size` of them that still break the invariant; None if none do."""
    for start in range(0, len(faults), size):
        fewer = faults[:start] + faults[start + size :]
        now_violated = run(replace(scenario, faults=fewer))
        if now_violated is not None and invariant_of(now_violated) == invariant_of(violation):
            return fewer, now_violated
    return None


def kept_faults(scenario: Scenario, numbers: str) -> Scenario:
    """Return the scenario with the faults of these numbers only, as ``0,3,4``; "none" for none."""
    if numbers == "none":
        return replace(scenario, faults=())
    kept = tuple(scenario.faults[int(number)] for number in numbers.split(","))
    return replace(scenario, faults=kept)


def numbers_of(scenario: Scenario, smaller: Scenario) -> str:
    """Return the numbers of the faults that `smaller` kept, for `kept_faults`."""
    left = list(smaller.faults)
    numbers = []
    for number, fault in enumerate(scenario.faults):
        if left and fault == left[0]:
            numbers.append(str(number))
            left.pop(0)
    return ",".join(numbers) or "none"
