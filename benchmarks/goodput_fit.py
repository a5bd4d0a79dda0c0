"""Time of the goodput model: to fit, to tabulate goodput, to choose a batch.

python benchmarks/goodput_fit.py [--json]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from autoscaler.domain.goodput import BatchBounds, ThroughputParameters
from autoscaler.domain.report import StepObservation
from autoscaler.goodput.batch_search import best_batch, goodput_table
from autoscaler.goodput.draws import DRAWS
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.prediction import goodput_draws
from autoscaler.goodput.prior import prior_for

TRUTH = ThroughputParameters(0.06, 0.0045, 0.2, 0.07, 0.08, 0.02, 2.0)
BOUNDS = BatchBounds(initial=200, maximum=12_800, device_maximum=200, adaptive=True)
ALLOCATIONS = 64
REPEATS = 30


def observations(count: int) -> list[StepObservation]:
    """Return step times of random sizes up to 16 instances of 4 devices, with 5 % noise."""
    generator = np.random.default_rng(0)
    truth = predictor_of(TRUTH)
    observed = []
    for _ in range(count):
        instances = int(generator.integers(1, 17))
        devices = instances * int(generator.integers(1, 5))
        batch = int(generator.choice([25, 50, 75, 100, 150, 200]))
        step = float(truth.step_seconds(instances, devices, batch, 0))
        sync = step - float(truth.compute_seconds(instances, devices, batch))
        factor = float(np.exp(0.05 * generator.normal()))
        observed.append(
            StepObservation("t4", instances, devices, batch, 0, step * factor, sync * factor, 100)
        )
    return observed


def median_milliseconds(call: Callable[[], object]) -> float:
    """Return the median time of REPEATS calls, in ms."""
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return 1000.0 * float(np.median(seconds))


def measure() -> dict[str, float]:
    """Return the median time in ms by name of the operation."""
    prior = prior_for("t4", 102_000_000, 6.25e9)
    figures: dict[str, float] = {}
    for count in (10, 50, 200):
        call = partial(fit, observations(count), prior)
        figures[f"fit, {count} observations"] = median_milliseconds(call)
    model = fit(observations(50), prior)
    drawn, noise = predictor_of(model.draws), np.geomspace(100, 10_000, DRAWS)
    devices = np.arange(1, ALLOCATIONS + 1)
    sizes = ((devices + 3) // 4, devices)
    figures[f"goodput_table, {DRAWS} draws x {ALLOCATIONS} allocations"] = median_milliseconds(
        lambda: goodput_table(drawn, noise, BOUNDS, *sizes)
    )
    figures[f"goodput_draws, {DRAWS} draws x {ALLOCATIONS} allocations"] = median_milliseconds(
        lambda: goodput_draws(model, noise, BOUNDS, *sizes)
    )
    figures["best_batch"] = median_milliseconds(
        lambda: best_batch(model.point, 2000.0, BOUNDS, 4, 16)
    )
    return figures


def main() -> None:
    """Print a table, or JSON."""
    figures = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:45s} {value:8.2f} ms")


if __name__ == "__main__":
    main()
