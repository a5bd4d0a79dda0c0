"""Loss of elastic runs of small tasks beside that of fixed runs, at equal useful examples.

    python benchmarks/convergence.py [DIRECTORY] [--tasks digits chargpt resnet groupnorm]
        [--seeds 10] [--at-once 1] [--json]

A run is alone at the batch of its script, or elastic: 1 to 3 real processes of the training
library, whose number changes every few seconds by joins, planned leaves and kills. Elastic runs
keep the batch (`elastic`) or let it grow up to 4 times (`adaptive`), with the optimizer's rule for
the learning rate. The loss is that of examples not trained on.

For each task the script prints mean losses over the seeds, the mean difference from the run alone,
and its standard error, that of a difference of two means. A row is within if the difference is at
most two standard errors. Results are stored in DIRECTORY, build/convergence by default: the same
command resumes after an interruption. The exit status is 1 if a row is not within.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from soak import write_digits

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import TrainingDirective
from tests.training import fleet as fleets
from tests.training.fleet import Fleet, ReplicaProcess

SCRIPT = "converging.py"
SCRIPTS = Path(__file__).parent / "scripts"
TASKS = ("digits", "chargpt", "resnet", "groupnorm")
KINDS = ("alone", "elastic", "adaptive")
BATCH, LARGEST_BATCH = 32, 128
MOST_REPLICAS = 3
STEP_SECONDS = 0.03
LIMIT_SECONDS = 600.0
# Model of step times under which larger batches are more efficient.
THROUGHPUT = ThroughputParameters(0.02, 1e-5, 0.02, 1e-4, 0.01, 1e-4, 1.5)

Result = dict[str, Any]


class Resized:
    """Job whose number of replicas changes at random every few seconds."""

    def __init__(
        self, fleet: Fleet, environment: dict[str, Any], generator: random.Random
    ) -> None:
        self._fleet = fleet
        self._environment = environment
        self._random = generator
        self._alive: list[ReplicaProcess] = []
        self.changes = 0

    def run(self) -> None:
        """Train to the end while the number of replicas changes.

        Raises:
            RuntimeError: a replica fails, or training takes longer than `LIMIT_SECONDS`.
        """
        began = time.monotonic()
        self._join()
        change_at = time.monotonic() + self._random.uniform(2.0, 4.0)
        while not self._is_over():
            if time.monotonic() - began > LIMIT_SECONDS:
                raise RuntimeError(f"a run takes longer than {LIMIT_SECONDS:g} s")
            if time.monotonic() > change_at:
                self._change()
                change_at = time.monotonic() + self._random.uniform(2.0, 4.0)
            time.sleep(0.05)

    def _is_over(self) -> bool:
        """Return whether the job has ended; drop replicas that left as planned.

        Raises:
            RuntimeError: a replica fails.
        """
        for replica in list(self._alive):
            status = replica.process.poll()
            if status is None:
                continue
            if status != 0:
                raise RuntimeError(f"a replica failed:\n{replica.log.read_text()[-2000:]}")
            if not replica.of_kind("left"):
                return True
            self._alive.remove(replica)
        return False

    def _join(self) -> None:
        """Start another replica."""
        replica = self._fleet.start(SCRIPT, **self._environment)
        replica.direct(TrainingDirective(throughput=THROUGHPUT))
        self._alive.append(replica)

    def _change(self) -> None:
        """Add or remove one replica at random; at least one training replica stays."""
        training = [replica for replica in self._alive if replica.step > 0]
        if len(self._alive) < MOST_REPLICAS and (len(training) < 2 or self._random.random() < 0.5):
            self._join()
        elif len(training) > 1:
            leaver = self._random.choice(training)
            if self._random.random() < 0.5:
                self._alive.remove(leaver)
                leaver.kill()
            else:
                leaver.direct(TrainingDirective(drain=True, throughput=THROUGHPUT))
        else:
            return
        self.changes += 1


def run(task: str, kind: str, seed: int, data: Path, step_seconds: float) -> Result:
    """Return the result of one run, with its number of changes."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        environment = {"TASK": task, "SEED": str(seed), "DATA": str(data), "RESULT": str(result)}
        changes = 0
        if kind == "alone":
            command = [sys.executable, str(SCRIPTS / SCRIPT)]
            subprocess.run(command, env={**os.environ, **environment}, check=True)
        else:
            is_adaptive = kind == "adaptive"
            spec = BatchSpec(
                initial=BATCH,
                maximum=LARGEST_BATCH if is_adaptive else BATCH,
                device_maximum=LARGEST_BATCH,
                adaptive=is_adaptive,
            )
            fleet = Fleet(Path(folder), batch=spec, checkpoint_interval_seconds=5.0)
            environment["STEP_SECONDS"] = str(step_seconds)
            job = Resized(fleet, environment, random.Random(f"{task} {kind} {seed}"))
            try:
                job.run()
                deadline = time.monotonic() + 10.0
                while not result.exists() and time.monotonic() < deadline:
                    time.sleep(0.1)
            finally:
                fleet.stop()
            changes = job.changes
        return {**json.loads(result.read_text()), "changes": changes}


def data_of(task: str, directory: Path) -> Path:
    """Return the file of a task's data, written on the first call."""
    if task != "chargpt":
        return write_digits(directory)
    text = directory / "text"
    if not text.exists():
        sys.path.insert(0, str(SCRIPTS.parents[1] / "examples" / "chargpt"))
        text.write_text(importlib.import_module("train").documentation())
    return text


def compared(alone: list[float], elastic: list[float]) -> Result:
    """Return the mean difference of losses, its standard error, and whether it is within two."""
    difference = statistics.mean(elastic) - statistics.mean(alone)
    variances = (statistics.variance(losses) / len(losses) for losses in (alone, elastic))
    error = math.sqrt(sum(variances))
    return {
        "difference": difference,
        "standard_error": error,
        "within": abs(difference) <= 2 * error,
    }


def rows_of(results: dict[str, Result], tasks: list[str], seeds: int) -> list[Result]:
    """Return a row for each task and kind of run, from results by name."""
    rows = []
    for task in tasks:
        losses = {}
        for kind in KINDS:
            kind_results = [results[f"{task} {kind} {seed}"] for seed in range(seeds)]
            losses[kind] = [result["loss"] for result in kind_results]
            row = {
                "task": task,
                "kind": kind,
                "seeds": seeds,
                "loss": statistics.mean(losses[kind]),
                "changes": statistics.mean(result["changes"] for result in kind_results),
                # A replica that joined after the last step reports 0 steps.
                "steps": statistics.mean(
                    result["steps"] for result in kind_results if result["steps"]
                ),
                "largest_batch": max(result["largest_batch"] for result in kind_results),
            }
            rows.append(row | (compared(losses["alone"], losses[kind]) if kind != "alone" else {}))
    return rows


def measure(arguments: argparse.Namespace) -> list[Result]:
    """Run what is not stored yet, and return the rows of all runs."""
    results_file = arguments.directory / "results.json"
    results: dict[str, Result] = (
        json.loads(results_file.read_text()) if results_file.exists() else {}
    )
    missing = [
        (task, kind, seed)
        for seed in range(arguments.seeds)
        for task in arguments.tasks
        for kind in KINDS
        if f"{task} {kind} {seed}" not in results
    ]
    data = {task: data_of(task, arguments.directory) for task in arguments.tasks}
    fleets.SCRIPTS = SCRIPTS
    fleets.nursery(*fleets.imported(None), path=None)  # before any thread uses it

    def done(task: str, kind: str, seed: int) -> tuple[str, Result]:
        """Return the name and the result of one run."""
        return f"{task} {kind} {seed}", run(task, kind, seed, data[task], arguments.step_seconds)

    with ThreadPoolExecutor(arguments.at_once) as threads:
        futures = [threads.submit(done, *run_key) for run_key in missing]
        console = Console(stderr=True)
        for future in track(as_completed(futures), "runs", total=len(futures), console=console):
            name, result = future.result()
            results[name] = result
            results_file.write_text(json.dumps(results, indent=1))
    return rows_of(results, arguments.tasks, arguments.seeds)


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="?", type=Path, default=Path("build/convergence"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--step-seconds", type=float, default=STEP_SECONDS)
    parser.add_argument("--at-once", type=int, default=1, help="number of runs in parallel")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error("--seeds: must be at least 2")
    arguments.directory.mkdir(parents=True, exist_ok=True)
    rows = measure(arguments)
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        print("| task | run | loss | steps | changes of size | difference | within |")
        print("|---|---|---|---|---|---|---|")
        for row in rows:
            print(shown(row))
    raise SystemExit(0 if all(row.get("within", True) for row in rows) else 1)


def shown(row: Result) -> str:
    """Return a row as a line of the table."""
    cells = [row["task"], row["kind"], f"{row['loss']:.4f}", f"{row['steps']:.0f}"]
    cells.append(f"{row['changes']:.1f}")
    if "within" in row:
        cells.append(f"{row['difference']:+.4f} (standard error {row['standard_error']:.4f})")
        cells.append("yes" if row["within"] else "no")
    else:
        cells += ["", ""]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
