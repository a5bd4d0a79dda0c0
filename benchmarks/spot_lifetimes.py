"""Distributions of the lifetimes of spot instances and of outages, compared by likelihood.

    CASTOR_DATA=... python benchmarks/spot_lifetimes.py

Lifetimes and outages of the traces of V100 instances of "Can't Be Late" (Wu et al., NSDI'24), each
predicted from those before it in its trace only, by four distributions with priors of equal mean.
Prints the mean log likelihood per lifetime, in hours: more is better, and 0.1 is 10 % more likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from data_folder import data_folder
from numpy.typing import NDArray
from scipy.optimize import minimize

from autoscaler.market.hazards import (
    AGES_SECONDS,
    Hazard,
    ObservedLifetime,
    posterior_hazard,
    prior_hazard,
)
from providers.simulated.capacity import CapacityTrace, read_capacity_trace

HOUR = 3600.0
PRIOR_PER_HOUR = 0.5
# Number of lifetimes after which models are fitted again.
STRIDE = 20

Likelihood = Callable[[ObservedLifetime], float]


def lives_of(trace: CapacityTrace) -> list[ObservedLifetime]:
    """Return the lifetimes of instances; the youngest instances end first."""
    lives, start_steps = [], list[int]()
    for step, count in enumerate(trace.counts):
        start_steps += [step] * (count - len(start_steps))
        while len(start_steps) > count:
            lives.append(ObservedLifetime((step - start_steps.pop()) * trace.gap_seconds, True))
    end = len(trace.counts)
    return lives + [
        ObservedLifetime((end - step) * trace.gap_seconds, False) for step in start_steps
    ]


def outages_of(trace: CapacityTrace) -> list[ObservedLifetime]:
    """Return the times without any instance, as lifetimes."""
    absent = tuple(int(count == 0) for count in trace.counts)
    return lives_of(CapacityTrace(trace.gap_seconds, absent))


def constant(past: Sequence[ObservedLifetime]) -> Likelihood:
    """Return the likelihood of a constant hazard, with a gamma prior worth one end."""
    ends = 1.0 + sum(life.has_ended for life in past)
    hazard = ends / (1.0 / PRIOR_PER_HOUR + sum(life.seconds for life in past) / HOUR)
    return lambda life: life.has_ended * math.log(hazard) - hazard * life.seconds / HOUR


def by_age(past: Sequence[ObservedLifetime]) -> Likelihood:
    """Return the likelihood of the controller's hazard by age."""
    hazard = posterior_hazard(past, prior_hazard(PRIOR_PER_HOUR / HOUR))
    return lambda life: _log_likelihood_by_age(hazard, life)


def _log_likelihood_by_age(hazard: Hazard, life: ObservedLifetime) -> float:
    """Return the log likelihood of a lifetime under a hazard by age."""
    ages = zip(AGES_SECONDS, hazard.per_second, strict=True)
    at_end = [per_second for age, per_second in ages if age < life.seconds][-1] * HOUR
    return life.has_ended * math.log(at_end) + math.log(hazard.survival(0.0, life.seconds))


def weibull(past: Sequence[ObservedLifetime]) -> Likelihood:
    """Return the likelihood of a hazard that is a power of age (Weibull)."""

    def logs(point: NDArray[np.float64], hours: float, has_ended: bool) -> float:
        """Return the log likelihood of a lifetime in hours."""
        shape, scale = math.exp(point[0]), math.exp(point[1])
        density = math.log(shape / scale) + (shape - 1.0) * math.log(hours / scale)
        return has_ended * density - math.pow(hours / scale, shape)

    return _maximum_a_posteriori(past, logs, (-0.35, -math.log(PRIOR_PER_HOUR)))


def lomax(past: Sequence[ObservedLifetime]) -> Likelihood:
    """Return the likelihood of a hazard that is inverse to age (Lomax, Pareto type II)."""

    def logs(point: NDArray[np.float64], hours: float, has_ended: bool) -> float:
        """Return the log likelihood of a lifetime in hours."""
        shape, scale = math.exp(point[0]), math.exp(point[1])
        return has_ended * math.log(shape / (scale + hours)) - shape * math.log1p(hours / scale)

    return _maximum_a_posteriori(past, logs, (0.2, math.log(1.2 / PRIOR_PER_HOUR)))


def _maximum_a_posteriori(
    past: Sequence[ObservedLifetime],
    logs: Callable[[NDArray[np.float64], float, bool], float],
    prior: tuple[float, float],
) -> Likelihood:
    """Return the likelihood at the most probable parameters, with a normal prior."""

    def cost(point: NDArray[np.float64], /, *_: object, **__: object) -> float:
        """Return the negative log posterior of the parameters."""
        deviations = float(point[0] - prior[0]) / 0.5, float(point[1] - prior[1])
        prior_cost = (deviations[0] * deviations[0] + deviations[1] * deviations[1]) / 2.0
        return prior_cost - sum(logs(point, life.seconds / HOUR, life.has_ended) for life in past)

    bounds = [(-4.0, 4.0), (-8.0, 8.0)]
    estimate = minimize(
        cost, np.array(prior), method="Nelder-Mead", bounds=bounds, options={"maxiter": 100}
    ).x
    return lambda life: logs(estimate, life.seconds / HOUR, life.has_ended)


def score(
    lives: Sequence[ObservedLifetime], fit: Callable[[Sequence[ObservedLifetime]], Likelihood]
) -> float:
    """Return the mean log likelihood of each lifetime given those before."""
    total = 0.0
    for first in range(0, len(lives), STRIDE):
        likelihood = fit(lives[:first])
        total += sum(likelihood(life) for life in lives[first : first + STRIDE])
    return total / len(lives)


def main() -> None:
    """Print the scores as Markdown."""
    data = data_folder("spot")
    models = (constant, by_age, weibull, lomax)
    print("| | number | " + " | ".join(model.__name__ for model in models) + " |")
    print("|---" * (2 + len(models)) + "|")
    for name, extract in (("lives", lives_of), ("outages", outages_of)):
        for path in sorted((data / "spot").glob("*/*v100*.json")):
            lives = extract(read_capacity_trace(path))
            scores = " | ".join(f"{score(lives, model):.2f}" for model in models)
            print(f"| {name}, {path.name.split('_')[0]} | {len(lives)} | {scores} |", flush=True)


if __name__ == "__main__":
    main()
