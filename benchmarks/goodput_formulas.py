"""Accuracy of each throughput model, and of the seven parameters on the same jobs.

python benchmarks/goodput_formulas.py

Synthetic jobs are drawn from the prior of a model, with the errors that the fit assumes. Some
sizes of each job are measured; errors are of goodput at the other sizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.coordinates import to_theta
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import DATA_PARALLEL, formula_for, predictor_of
from autoscaler.goodput.likelihood import (
    BATCH_LOG_DEVIATION,
    ROW_LOG_DEVIATION,
    SIZE_LOG_DEVIATION,
)
from autoscaler.goodput.prediction import goodput_draws
from autoscaler.goodput.prior import ThroughputPrior, prior_for
from autoscaler.goodput.throughput import FloatArray, Formula, Predictor

JOBS = 200
BOUNDS = BatchBounds(initial=64, maximum=4096, device_maximum=64, adaptive=True)
NOISE_EXAMPLES = 500.0
BATCHES = (8, 16, 64)
SMALL = ((1, 1), (1, 4), (2, 2), (2, 8))
# Every size holds whole replicas of four devices, some of them on two instances.
WHOLE = ((1, 4), (1, 8), (2, 4), (2, 8), (2, 16), (3, 12), (4, 8), (4, 16), (4, 32), (8, 64))
GANGS = ((1, 4), (1, 8), (2, 4), (2, 8), (2, 16), (4, 4), (4, 8), (4, 16), (4, 32), (8, 64))
MODELS = {
    "seven parameters": (ParallelismSpec(), (*SMALL, *WHOLE[4:])),
    "pipeline of 4": (ParallelismSpec(pipeline=4, microbatches=16), WHOLE),
    "third level above 2": (ParallelismSpec(near_instances=2), (*SMALL, *WHOLE[4:])),
    "shard of 4": (ParallelismSpec(shard=4), GANGS),
}


def prior_of(formula: Formula) -> ThroughputPrior:
    """Return the prior of a formula for 100 MB over 16 Gbit/s, at about 0.01 s an example."""
    return prior_for("t4", 100_000_000, 2e9, seconds_per_example=0.01, formula=formula)


def observed(
    truth: Predictor, sizes: Sequence[tuple[int, int]], generator: np.random.Generator
) -> list[StepObservation]:
    """Return 1,000 steps of every size and batch, with errors of sizes, batches and step times."""
    batch_errors = BATCH_LOG_DEVIATION * generator.normal(size=len(BATCHES))
    observations = []
    for size in sizes:
        size_error = SIZE_LOG_DEVIATION * generator.normal()
        for batch, batch_error in zip(BATCHES, batch_errors, strict=True):
            step_error, compute_error = ROW_LOG_DEVIATION * generator.normal(size=2)
            step = float(truth.step_seconds(*size, batch, 0)) * np.exp(size_error + step_error)
            compute = float(truth.compute_seconds(*size, batch)) * np.exp(
                batch_error + compute_error
            )
            waits = float(truth.sync_seconds(*size)) > 0
            sync = min(max(step - compute, 0.0), 0.999 * step) if waits else 0.0
            observations.append(StepObservation("t4", *size, batch, 0, step, sync, 1000))
    return observations


def log_errors(model: ThroughputModel, truth: FloatArray, sizes: FloatArray) -> FloatArray:
    """Return the absolute log errors of goodput by the point estimate.

    The true goodput excludes the errors of sizes, which no model can know.
    """
    (goodput,) = goodput_table(predictor_of((model.point,)), NOISE_EXAMPLES, BOUNDS, *sizes.T)
    errors: FloatArray = np.abs(np.log(goodput / truth))
    return errors


def row(name: str, measured: int) -> str:
    """Return one line of the table."""
    spec, sizes = MODELS[name]
    prior, plain = prior_of(formula_for(spec)), prior_of(DATA_PARALLEL)
    own_errors, seven_errors, is_held = [], [], []
    for seed in range(JOBS):
        generator = np.random.default_rng(seed)
        drawn = prior.mean + prior.spread @ generator.standard_normal(len(prior.mean))
        truth = Predictor(prior.formula, to_theta(drawn)[None])
        order = generator.permutation(len(sizes))
        unmeasured = np.array([sizes[index] for index in order[measured:]])
        truth_point = Predictor(truth.formula, truth.theta[0])
        observations = observed(
            truth_point, [sizes[index] for index in order[:measured]], generator
        )
        model = fit(observations, prior)
        (goodput,) = goodput_table(truth, NOISE_EXAMPLES, BOUNDS, *unmeasured.T)
        own_errors += log_errors(model, goodput, unmeasured).tolist()
        seven_errors += log_errors(fit(observations, plain), goodput, unmeasured).tolist()
        actual_goodput = goodput * np.exp(
            -SIZE_LOG_DEVIATION * generator.normal(size=len(unmeasured))
        )
        draws = goodput_draws(model, NOISE_EXAMPLES, BOUNDS, *unmeasured.T)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
        is_held += ((low <= actual_goodput) & (actual_goodput <= high)).tolist()
    cells = [
        100 * np.quantile(errors, quantile)
        for errors in (own_errors, seven_errors)
        for quantile in (0.5, 0.9)
    ]
    of_own, of_seven = (f"{median:.0f}, {decile:.0f}" for median, decile in (cells[:2], cells[2:]))
    return f"| {name} | {measured} | {of_own} | {of_seven} | {100 * np.mean(is_held):.0f} |"


def main() -> None:
    """Print the table of docs/goodput.md."""
    print("| jobs of | sizes measured | fitted with their own | with the seven | 90 % held |")
    print("|---|---|---|---|---|")
    for name in MODELS:
        for measured in (2, 4, 6):
            print(row(name, measured))


if __name__ == "__main__":
    main()
