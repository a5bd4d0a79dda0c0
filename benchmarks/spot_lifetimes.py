"""Which distribution tells best how long spot instances live, and how long outages last.

    CASTOR_DATA=... python benchmarks/spot_lifetimes.py

Lives and outages of the traces of V100 instances of "Can't Be Late" (Wu et al., NSDI'24), each
predicted from those before it in its trace alone, by four distributions with priors of one mean.
Prints the mean log likelihood per life, in hours: more is better, and 0.1 is 10 % more likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from data_folder import data_folder
from numpy.typing import NDArray
from scipy.optimize import minimize

from autoscaler.market.hazards import AGES_SECONDS, Hazard, Life, learnt_hazard, usual_hazard
from providers.simulated.capacity import CapacityTrace, read_capacity_trace

HOUR = 3600.0
PRIOR_PER_HOUR = 0.5
# Models are fitted again after so many lives.
STRIDE = 20

Likelihood = Callable[[Life], float]


def lives_of(trace: CapacityTrace) -> list[Life]:
    """Of instances, of which the youngest go first."""
    found, held = [], list[int]()
    for step, count in enumerate(trace.counts):
        held += [step] * (count - len(held))
        while len(held) > count:
            found.append(Life((step - held.pop()) * trace.gap_seconds, True))
    end = len(trace.counts)
    return found + [Life((end - step) * trace.gap_seconds, False) for step in held]


def outages_of(trace: CapacityTrace) -> list[Life]:
    """The times without any, as lives of their own."""
    absent = tuple(int(count == 0) for count in trace.counts)
    return lives_of(CapacityTrace(trace.gap_seconds, absent))


def constant(past: Sequence[Life]) -> Likelihood:
    """A hazard that does not age, with a gamma prior that counts for one end."""
    ends = 1.0 + sum(life.has_ended for life in past)
    hazard = ends / (1.0 / PRIOR_PER_HOUR + sum(life.seconds for life in past) / HOUR)
    return lambda life: life.has_ended * math.log(hazard) - hazard * life.seconds / HOUR


def by_age(past: Sequence[Life]) -> Likelihood:
    """What the controller believes in."""
    hazard = learnt_hazard(past, usual_hazard(PRIOR_PER_HOUR / HOUR))
    return lambda life: _by_age(hazard, life)


def _by_age(hazard: Hazard, life: Life) -> float:
    ages = zip(AGES_SECONDS, hazard.per_second, strict=True)
    at_end = [each for age, each in ages if age < life.seconds][-1] * HOUR
    return life.has_ended * math.log(at_end) + math.log(hazard.survival(0.0, life.seconds))


def weibull(past: Sequence[Life]) -> Likelihood:
    """A hazard that goes with a power of age."""

    def logs(point: NDArray[np.float64], hours: float, has_ended: bool) -> float:
        shape, scale = math.exp(point[0]), math.exp(point[1])
        density = math.log(shape / scale) + (shape - 1.0) * math.log(hours / scale)
        return has_ended * density - math.pow(hours / scale, shape)

    return _most_likely(past, logs, (-0.35, -math.log(PRIOR_PER_HOUR)))


def lomax(past: Sequence[Life]) -> Likelihood:
    """A hazard that goes with one over age (Pareto's second kind)."""

    def logs(point: NDArray[np.float64], hours: float, has_ended: bool) -> float:
        shape, scale = math.exp(point[0]), math.exp(point[1])
        return has_ended * math.log(shape / (scale + hours)) - shape * math.log1p(hours / scale)

    return _most_likely(past, logs, (0.2, math.log(1.2 / PRIOR_PER_HOUR)))


def _most_likely(
    past: Sequence[Life],
    logs: Callable[[NDArray[np.float64], float, bool], float],
    prior: tuple[float, float],
) -> Likelihood:
    def cost(point: NDArray[np.float64], /, *_: object, **__: object) -> float:
        off = float(point[0] - prior[0]) / 0.5, float(point[1] - prior[1])
        doubt = (off[0] * off[0] + off[1] * off[1]) / 2.0
        return doubt - sum(logs(point, life.seconds / HOUR, life.has_ended) for life in past)

    bounds = [(-4.0, 4.0), (-8.0, 8.0)]
    found = minimize(
        cost, np.array(prior), method="Nelder-Mead", bounds=bounds, options={"maxiter": 100}
    ).x
    return lambda life: logs(found, life.seconds / HOUR, life.has_ended)


def score(lives: Sequence[Life], fit: Callable[[Sequence[Life]], Likelihood]) -> float:
    """The mean log likelihood of each life by those before."""
    total = 0.0
    for first in range(0, len(lives), STRIDE):
        likelihood = fit(lives[:first])
        total += sum(likelihood(life) for life in lives[first : first + STRIDE])
    return total / len(lives)


def main() -> None:
    """Print Markdown."""
    data = data_folder("spot")
    models = (constant, by_age, weibull, lomax)
    print("| | number | " + " | ".join(model.__name__ for model in models) + " |")
    print("|---" * (2 + len(models)) + "|")
    for name, of_trace in (("lives", lives_of), ("outages", outages_of)):
        for path in sorted((data / "spot").glob("*/*v100*.json")):
            lives = of_trace(read_capacity_trace(path))
            scores = " | ".join(f"{score(lives, model):.2f}" for model in models)
            print(f"| {name}, {path.name.split('_')[0]} | {len(lives)} | {scores} |", flush=True)


if __name__ == "__main__":
    main()
