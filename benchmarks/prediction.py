"""Goodput predicted before changes of size, compared with goodput measured after them.

    python benchmarks/prediction.py [DIRECTORY] [--seeds 20] [--first-seed 0]
        [--resizes 10] [--at-once 1] [--json]

Each seed is a job: a small real task (digits, chargpt and resnet in turn) that 1 to 4 replicas
train, real processes of the training library on this machine. A step is the task's own work, the
sums over gloo, and a sleep in place of a device: a fixed part for each micro-batch and a part for
each example, drawn for each seed. The batch adapts from 32 to 256. Every few seconds the job gets
another size at random: replicas join, leave as planned, or are killed.

The prediction is goodput at the best batch of the new size, by `goodput_draws` of the model that a
controller had fitted before the change, at the noise scale reported before it: the median, and the
central 90 % as in forecasts. The measurement is the throughput in the reports, from 6 s after the
first report of the new size on and for 4 s of steps, times the efficiency of each batch at the
noise scale reported last. Throughput at the most used batch, and the noise scale are compared
separately, too.

The reported noise scale is an average over many steps, so part of its error is equal before and
after. Other rows use the noise scale of all examples instead, from the gradients of the whole data
set at every fifth step of those 4 s. `by the script's clock` has throughput by the clock of the
script, including the time between steps. The last rows are by task, and by the load of the machine
at the measurement: up to its median, and above it.

Errors are predicted over measured, less 1. A size is seen if the model was fitted to step times of
it. Confidence intervals of coverage assume independent resizes. The target is for all resizes: a
median error of goodput of at most 10 %, and bands that hold 85 to 95 %. The exit status is 1 if it
is missed.

A job of ten resizes takes three minutes, and more on cores with other work. Complete jobs are
stored in DIRECTORY, build/prediction by default: the same command resumes after an interruption.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from scipy.stats import binomtest

sys.path.insert(0, str(Path(__file__).parents[1]))

from convergence import SCRIPTS, data_of
from resized_job import TASKS, Resize, ResizedJob, Stretch

from autoscaler.economics.forecasts.forecast import range_of
from autoscaler.goodput.draws import noise_draws
from autoscaler.goodput.efficiency import efficiency
from autoscaler.goodput.prediction import goodput_draws, predicted_step
from autoscaler.wire.codec import decode, encode
from tests.training import fleet as fleets

MOST_ERROR = 0.10
COVERAGE = 0.85, 0.95

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """Prediction with its central 90 %, and the measurement."""

    predicted: float
    low: float
    high: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0

    @property
    def is_held(self) -> bool:
        """Whether the measurement is in the central 90 %."""
        return self.low <= self.measured <= self.high


def goodput(resize: Resize) -> Judged:
    """Return the goodput of the new size, in useful examples per second."""
    return goodput_at(resize, resize.reported_noise.examples)


def goodput_of_all(resize: Resize) -> Judged:
    """Return the goodput of the new size at the noise scale of all examples."""
    return goodput_at(resize, resize.noise_examples)


def goodput_at(resize: Resize, noise_examples: float) -> Judged:
    """Return the goodput of the new size, measured by the reports at a noise scale."""
    observations = [stretch.observation for stretch in resize.stretches]
    seconds = sum(observation.steps * observation.step_seconds for observation in observations)
    useful = sum(
        stretch.observation.steps
        * useful_examples(stretch.batch, resize.bounds.initial, noise_examples)
        for stretch in resize.stretches
    )
    return predicted(resize, useful / seconds)


def goodput_by_clock(resize: Resize) -> Judged:
    """Return the goodput of the new size, measured by the clock of the script."""
    initial, noise_examples = resize.bounds.initial, resize.reported_noise.examples
    steps = resize.steps
    useful = sum(useful_examples(step.examples, initial, noise_examples) for step in steps[1:])
    return predicted(resize, useful / (steps[-1].at - steps[0].at))


def predicted(resize: Resize, measured: float) -> Judged:
    """Return the predicted goodput of the new size, with the central 90 % of forecasts."""
    model, bounds, size = resize.model, resize.bounds, [resize.after]
    examples = noise_draws(resize.noise, bounds.initial, len(model.draws))
    draws = goodput_draws(model, examples, bounds, size, size)[:, 0]
    seconds = range_of(1.0 / draws)
    return Judged(1.0 / seconds.median, 1.0 / seconds.high, 1.0 / seconds.low, measured)


def useful_examples(batch: int, initial: int, noise_examples: float) -> float:
    """Return the useful examples of a step of a batch."""
    return batch * float(efficiency(noise_examples, initial, max(batch, initial)))


def throughput(resize: Resize) -> Judged:
    """Return the throughput of the new size at the most used batch, in examples per second."""
    stretches = longest(resize.stretches)
    batch, steps = stretches[0].batch, sum(stretch.observation.steps for stretch in stretches)
    seconds = sum(
        stretch.observation.steps * stretch.observation.step_seconds for stretch in stretches
    )
    step = predicted_step(resize.model, stretches[0].observation)
    return Judged(
        predicted=batch / step.seconds,
        low=batch / step.most_seconds,
        high=batch / step.least_seconds,
        measured=batch * steps / seconds,
    )


def longest(stretches: tuple[Stretch, ...]) -> list[Stretch]:
    """Return the stretches of the configuration with the most time."""
    spent_seconds: dict[tuple[object, ...], float] = defaultdict(float)
    for stretch in stretches:
        observation = stretch.observation
        spent_seconds[observation.configuration] += observation.steps * observation.step_seconds
    most = max(spent_seconds, key=spent_seconds.__getitem__)
    return [stretch for stretch in stretches if stretch.observation.configuration == most]


def noise_scale(resize: Resize) -> Judged:
    """Return the noise scale, in examples."""
    return noise_beside(resize, resize.reported_noise.examples)


def noise_of_all(resize: Resize) -> Judged:
    """Return the noise scale, measured from all examples."""
    return noise_beside(resize, resize.noise_examples)


def noise_beside(resize: Resize, measured: float) -> Judged:
    """Return the noise scale known before the change, with a measurement."""
    drawn = range_of(noise_draws(resize.noise, resize.bounds.initial, len(resize.model.draws)))
    return Judged(resize.noise.examples, drawn.low, drawn.high, measured)


QUANTITIES: dict[str, Callable[[Resize], Judged]] = {
    "goodput": goodput,
    "throughput": throughput,
    "noise scale": noise_scale,
    "goodput by the script's clock": goodput_by_clock,
    "goodput, noise scale of all examples": goodput_of_all,
    "noise scale of all examples": noise_of_all,
}


def row_of(judged: list[Judged]) -> Row:
    """Return statistics of the errors of predictions, and how many of their bands held."""
    if not judged:
        return {"resizes": 0}
    errors = [judgement.error for judgement in judged]
    sizes = [abs(error) for error in errors]
    held = sum(judgement.is_held for judgement in judged)
    interval = binomtest(held, len(judged)).proportion_ci(method="exact")
    return {
        "resizes": len(judged),
        "median": statistics.median(errors),
        "median_absolute": statistics.median(sizes),
        "ninth_decile": float(np.quantile(sizes, 0.9)),
        "held": held / len(judged),
        "held_interval": [float(interval.low), float(interval.high)],
        "band": statistics.median(judgement.high / judgement.low for judgement in judged),
    }


def rows_of(resizes: list[Resize]) -> list[Row]:
    """Return rows: each quantity by whether a size was seen, then two by task and by load."""
    by_size = {
        "all": resizes,
        "seen": [resize for resize in resizes if resize.is_seen],
        "not seen": [resize for resize in resizes if not resize.is_seen],
    }
    middle = statistics.median(resize.load for resize in resizes)
    by_cause = {
        **{task: [resize for resize in resizes if resize.task == task] for task in TASKS},
        f"load up to {middle:.1f}": [resize for resize in resizes if resize.load <= middle],
        f"load above {middle:.1f}": [resize for resize in resizes if resize.load > middle],
    }
    groups = [(name, *group) for name in QUANTITIES for group in by_size.items()]
    groups += [(name, *group) for name in list(QUANTITIES)[:2] for group in by_cause.items()]
    return [
        {"of": name, "which": group, **row_of([QUANTITIES[name](resize) for resize in chosen])}
        for name, group, chosen in groups
    ]


def is_reached(row: Row) -> bool:
    """Return whether a row meets the target."""
    return row["median_absolute"] <= MOST_ERROR and COVERAGE[0] <= row["held"] <= COVERAGE[1]


def facts_of(resizes: list[Resize]) -> Row:
    """Return further statistics of the resizes."""
    batches = [longest(resize.stretches)[0].batch for resize in resizes]
    efficiencies = [
        useful_examples(batch, resize.bounds.initial, resize.reported_noise.examples) / batch
        for batch, resize in zip(batches, resizes, strict=True)
    ]
    return {
        "resizes": len(resizes),
        "jobs": len({(resize.task, resize.seed) for resize in resizes}),
        "how": dict(Counter(resize.how for resize in resizes)),
        "to_replicas": {
            str(replicas): count
            for replicas, count in sorted(Counter(resize.after for resize in resizes).items())
        },
        "batch_quartiles": np.quantile(batches, [0.25, 0.5, 0.75]).tolist(),
        "efficiency_quartiles": np.quantile(efficiencies, [0.25, 0.5, 0.75]).tolist(),
        "noise_before_deviation": statistics.median(
            resize.noise.log_standard_deviation for resize in resizes
        ),
        "load": statistics.median(resize.load for resize in resizes),
    }


def run(seed: int, resizes: int, result_file: Path, is_over: threading.Event) -> None:
    """Run the job of a seed, and store its changes of size after all of them."""
    task = TASKS[seed % len(TASKS)]
    data = data_of(task, result_file.parent)
    with tempfile.TemporaryDirectory() as folder:
        resizes_made = ResizedJob(Path(folder), task, seed, data, is_over).run(resizes)
    unfinished = result_file.with_suffix(".unfinished")
    unfinished.write_bytes(encode(tuple[Resize, ...], tuple(resizes_made)))
    unfinished.replace(result_file)


def measure(arguments: argparse.Namespace) -> list[Resize]:
    """Run the jobs without stored results, and return the changes of size of all jobs."""
    directory, count = arguments.directory, arguments.resizes
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    files = {seed: directory / f"{seed}-of-{count}.json" for seed in seeds}
    missing = [(seed, file) for seed, file in files.items() if not file.exists()]
    for task in TASKS:
        data_of(task, directory)
    fleets.SCRIPTS = SCRIPTS
    fleets.nursery(*fleets.imported(None), path=None)  # before any thread uses it
    is_over = threading.Event()
    with ThreadPoolExecutor(arguments.at_once) as threads:
        futures = [threads.submit(run, seed, count, file, is_over) for seed, file in missing]
        console = Console(stderr=True)
        try:
            for future in track(as_completed(futures), "jobs", len(futures), console=console):
                future.result()
        except BaseException:
            is_over.set()
            threads.shutdown(cancel_futures=True)
            raise
    return [resize for file in files.values() for resize in resizes_in(file)]


def resizes_in(file: Path) -> tuple[Resize, ...]:
    """Return the stored changes of size of one job."""
    return decode(tuple[Resize, ...], file.read_bytes())


def shown(row: Row) -> str:
    """Return a row as a line of the table."""
    cells = [row["of"], row["which"], str(row["resizes"])]
    if row["resizes"]:
        low, high = row["held_interval"]
        cells += [f"{100 * row['median']:+.1f}", f"{100 * row['median_absolute']:.1f}"]
        cells += [f"{100 * row['ninth_decile']:.1f}"]
        cells += [f"{100 * row['held']:.0f} ({100 * low:.0f} to {100 * high:.0f})"]
        cells += [f"{row['band']:.2f}"]
    else:
        cells += [""] * 5
    return f"| {' | '.join(cells)} |"


def print_table(facts: Row, rows: list[Row]) -> None:
    """Print a table, and the facts below it."""
    print("| predicted | which | resizes | error, median % | of its size, median % ", end="")
    print("| 9th decile % | held % (95 % interval) | band, high / low |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(shown(row))
    print()
    for name, value in facts.items():
        print(f"{name.replace('_', ' ')}: {value}")


def parsed() -> argparse.Namespace:
    """Return the command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="?", type=Path, default=Path("build/prediction"))
    parser.add_argument("--seeds", type=int, default=20, help="number of jobs")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--resizes", type=int, default=10, help="resizes of each job")
    parser.add_argument("--at-once", type=int, default=1, help="number of jobs in parallel")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if min(arguments.seeds, arguments.resizes, arguments.at_once) < 1:
        parser.error("--seeds, --resizes and --at-once: must be at least 1")
    return arguments


def main() -> None:
    """Run the missing jobs, and print the table of all jobs."""
    arguments = parsed()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    resizes = measure(arguments)
    facts, rows = facts_of(resizes), rows_of(resizes)
    is_met = is_reached(rows[0])
    if arguments.json:
        print(json.dumps({"facts": facts, "rows": rows, "is_target_reached": is_met}, indent=2))
    else:
        print_table(facts, rows)
        print("target reached" if is_met else "target missed")
    raise SystemExit(0 if is_met else 1)


if __name__ == "__main__":
    main()
