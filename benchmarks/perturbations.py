"""Random cases that a goodput model mispredicts: cliffs, drift, odd devices, misreported noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TypeVar

import numpy as np

from autoscaler.simulator.profiles.slowdowns import Slowdown

_Number = TypeVar("_Number", int, float)

CLIFF, DRIFT, KIND, NOISE = "cliff", "drift", "kind", "noise"
# Of each 20 cases: 12 cliffs, 3 drifts, 2 kinds, 3 noises, spread evenly.
_ROUND = (
    *(CLIFF, CLIFF, NOISE, CLIFF, CLIFF, DRIFT, CLIFF, CLIFF, KIND, CLIFF),
    *(CLIFF, NOISE, CLIFF, DRIFT, CLIFF, CLIFF, KIND, NOISE, CLIFF, DRIFT),
)
VALUES_OF_TIME = (1.0, 10.0, 100.0)
_CLIFF_FACTORS = (1.5, 3.0, 10.0)
_CLIFF_NODES = (2, 3, 4, 8)
_DRIFT_FACTOR = 3.0
_DRIFT_SECONDS = (1200.0, 3600.0)
_KIND_FACTORS = (5.0, 1 / 5.0)
_NOISE_FACTORS = (4.0, 1 / 4.0)


@dataclass(frozen=True)
class Perturbation:
    """Difference of a run from its application's profile.

    `noise_factor` is the ratio of reported to true noise scales.
    """

    name: str
    slowdowns: tuple[Slowdown, ...] = ()
    noise_factor: float = 1.0

    def __str__(self) -> str:
        if self.name == NOISE:
            return f"noise reported x{self.noise_factor:g}"
        (slowdown,) = self.slowdowns
        if self.name == KIND:
            return f"{slowdown.kind} x{slowdown.factor:g}"
        nodes = f"{slowdown.kind} n{'>' if self.name == CLIFF else ''}={slowdown.least_nodes}"
        after = f" after {slowdown.from_seconds / 60:g} min" if slowdown.from_seconds else ""
        return f"{nodes} x{slowdown.factor:g}{after}"


@dataclass(frozen=True)
class Case:
    """Perturbed run of a subject at one value of time ($/h); `seed` is that of its errors."""

    number: int
    subject: str
    value_of_time: float
    perturbation: Perturbation
    seed: int


def draw_cases(most_nodes: Mapping[str, Mapping[str, int]], count: int, seed: int) -> list[Case]:
    """Return `count` random cases; equal seeds and subjects give equal cases.

    Args:
        most_nodes: most nodes on offer, by subject and kind of device.
        count: number of cases.
        seed: seed of the draws.
    """
    random = np.random.default_rng(seed)
    subjects = [str(name) for name in random.permutation(sorted(most_nodes))]
    cases = []
    for number, name in enumerate(islice(cycle(_ROUND), count)):
        subject = subjects[number % len(subjects)]
        value = VALUES_OF_TIME[int(random.integers(len(VALUES_OF_TIME)))]
        perturbation = _draw(name, most_nodes[subject], random)
        cases.append(Case(number, subject, value, perturbation, 1000 * seed + number))
    return cases


def named_case(text: str, number: int, seed: int) -> Case:
    """Return the case of ``SUBJECT:USD_PER_HOUR:KIND:NODES:FACTOR[:MINUTES]``.

    The case is a cliff from NODES nodes on or, with MINUTES, a drift of NODES nodes after that
    time.

    Raises:
        ValueError: the text does not have this form.
    """
    parts = text.split(":")
    if len(parts) not in (5, 6):
        raise ValueError(f"{text}: must be SUBJECT:USD_PER_HOUR:KIND:NODES:FACTOR[:MINUTES]")
    subject, value, kind, nodes, factor, *minutes = parts
    least = int(nodes)
    if minutes:
        drift = Slowdown(kind, float(factor), least, least, 60.0 * float(minutes[0]))
        perturbation = Perturbation(DRIFT, (drift,))
    else:
        perturbation = Perturbation(CLIFF, (Slowdown(kind, float(factor), least),))
    return Case(number, subject, float(value), perturbation, 1000 * seed + number)


def _draw(name: str, most_nodes: Mapping[str, int], random: np.random.Generator) -> Perturbation:
    """Return a random perturbation of a kind."""
    if name == NOISE:
        return Perturbation(name, noise_factor=_choice(_NOISE_FACTORS, random))
    kinds = sorted(most_nodes)
    kind = kinds[int(random.integers(len(kinds)))]
    if name == KIND:
        return Perturbation(name, (Slowdown(kind, _choice(_KIND_FACTORS, random)),))
    if name == DRIFT:
        nodes = _choice([1, *_offered_cliff_nodes(most_nodes[kind])], random)
        moment = _choice(_DRIFT_SECONDS, random)
        return Perturbation(name, (Slowdown(kind, _DRIFT_FACTOR, nodes, nodes, moment),))
    nodes = _choice(_offered_cliff_nodes(most_nodes[kind]), random)
    return Perturbation(name, (Slowdown(kind, _choice(_CLIFF_FACTORS, random), nodes),))


def _offered_cliff_nodes(most_nodes: int) -> list[int]:
    """Return the numbers of nodes of a cliff on offer; the least one if none is."""
    return [nodes for nodes in _CLIFF_NODES if nodes <= most_nodes] or [_CLIFF_NODES[0]]


def _choice(values: Sequence[_Number], random: np.random.Generator) -> _Number:
    """Return a random value."""
    return values[int(random.integers(len(values)))]


def counts(cases: Sequence[Case]) -> Counter[str]:
    """Return the number of cases of each kind of perturbation."""
    return Counter(case.perturbation.name for case in cases)
