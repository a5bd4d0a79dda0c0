"""How well each throughput model is learnt, and what the seven parameters make of the same jobs.

python benchmarks/goodput_formulas.py

Made-up jobs, drawn from what is believed of a model before anything is measured, err as the fit
assumes; some sizes of each are measured. Errors are of goodput at the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.batch import goodput_table
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
MODELS = {
    "seven parameters": (ParallelismSpec(), (*SMALL, *WHOLE[4:])),
    "pipeline of 4": (ParallelismSpec(pipeline=4, microbatches=16), WHOLE),
    "third level above 2": (ParallelismSpec(near_instances=2), (*SMALL, *WHOLE[4:])),
}


def prior_of(formula: Formula) -> ThroughputPrior:
    """Of 100 MB over 16 Gbit/s, at about 0.01 s an example."""
    return prior_for("t4", 100_000_000, 2e9, seconds_per_example=0.01, formula=formula)


def observed(
    truth: Predictor, sizes: Sequence[tuple[int, int]], generator: np.random.Generator
) -> list[StepObservation]:
    """A thousand steps of every size at every batch, with errors of each and of each step time."""
    of_batch = BATCH_LOG_DEVIATION * generator.normal(size=len(BATCHES))
    seen = []
    for size in sizes:
        of_size = SIZE_LOG_DEVIATION * generator.normal()
        for batch, shared in zip(BATCHES, of_batch, strict=True):
            of_step, of_compute = ROW_LOG_DEVIATION * generator.normal(size=2)
            step = float(truth.step_seconds(*size, batch, 0)) * np.exp(of_size + of_step)
            compute = float(truth.compute_seconds(*size, batch)) * np.exp(shared + of_compute)
            waits = float(truth.sync_seconds(*size)) > 0
            sync = min(max(step - compute, 0.0), 0.999 * step) if waits else 0.0
            seen.append(StepObservation("t4", *size, batch, 0, step, sync, 1000))
    return seen


def log_errors(model: ThroughputModel, truth: FloatArray, sizes: FloatArray) -> FloatArray:
    """Of the point's goodput, without the errors of sizes, which nobody can know."""
    (found,) = goodput_table(predictor_of((model.point,)), NOISE_EXAMPLES, BOUNDS, *sizes.T)
    errors: FloatArray = np.abs(np.log(found / truth))
    return errors


def row(name: str, measured: int) -> str:
    """One line of the table."""
    spec, sizes = MODELS[name]
    prior, plain = prior_of(formula_for(spec)), prior_of(DATA_PARALLEL)
    own, seven, held = [], [], []
    for seed in range(JOBS):
        generator = np.random.default_rng(seed)
        drawn = prior.mean + prior.spread @ generator.standard_normal(len(prior.mean))
        truth = Predictor(prior.formula, to_theta(drawn)[None])
        order = generator.permutation(len(sizes))
        rest = np.array([sizes[i] for i in order[measured:]])
        first = Predictor(truth.formula, truth.theta[0])
        seen = observed(first, [sizes[i] for i in order[:measured]], generator)
        model = fit(seen, prior)
        (goodput,) = goodput_table(truth, NOISE_EXAMPLES, BOUNDS, *rest.T)
        own += log_errors(model, goodput, rest).tolist()
        seven += log_errors(fit(seen, plain), goodput, rest).tolist()
        really = goodput * np.exp(-SIZE_LOG_DEVIATION * generator.normal(size=len(rest)))
        draws = goodput_draws(model, NOISE_EXAMPLES, BOUNDS, *rest.T)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0, method="weibull")
        held += ((low <= really) & (really <= high)).tolist()
    cells = [100 * np.quantile(errors, q) for errors in (own, seven) for q in (0.5, 0.9)]
    of_own, of_seven = (f"{a:.0f}, {b:.0f}" for a, b in (cells[:2], cells[2:]))
    return f"| {name} | {measured} | {of_own} | {of_seven} | {100 * np.mean(held):.0f} |"


def main() -> None:
    """Print the table of docs/goodput.md."""
    print("| jobs of | sizes measured | fitted with their own | with the seven | 90 % held |")
    print("|---|---|---|---|---|")
    for name in MODELS:
        for measured in (2, 4, 6):
            print(row(name, measured))


if __name__ == "__main__":
    main()
