"""Time of a tick of the control loop, by the number of jobs and instances in its store.

    python benchmarks/ticks.py [--jobs 100,1000,10000] [--instances 10] [--json]

The jobs of an SQLite store have `--instances` instances each, which train on a cloud that answers
at once. The controller leads its store. `first` is the first tick of a process that has just
started, and `measured` the same for jobs that have step times and stored models. `quiet` is one in
which nothing changes, `reports` one after a heartbeat of every instance (1,000 at most), `plan`
one whose plan has one more instance for one job, and is stored. The policy keeps all jobs as they
are otherwise, since `benchmarks/planning.py` measures plans. Times are of the processor, in
seconds; `statements` are those of the first tick, a quiet one, and one with the plan.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.domain.report import StepObservation
from autoscaler.http_server import collect_rarely
from tests.controller import world
from tests.controller.cloud import QuickCloud
from tests.controller.world import World
from tests.store.led import led_store
from tests.store.test_statements import counted

FIRST = "job-0"
MOST_REPORTS = 1_000
SIZES = (1, 2, 4, 8)
QUIET_TICKS = 3
# Tables with rows of a job, in the order in which they refer to each other.
TABLES = ("jobs", "instances", "intents", "ledger", "observations", "models")
# Keys that the database counts.
COUNTED = {"jobs": "number", "intents": "id", "ledger": "id"}


Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Row:
    """Figures for one number of jobs."""

    jobs: int
    instances: int
    first_seconds: float
    measured_seconds: float
    quiet_seconds: float
    reports_seconds: float
    plan_seconds: float
    first_statements: int
    quiet_statements: int
    plan_statements: int


def copied(value: object, job: str) -> object:
    """Return a value of the first job as that of another one."""
    return value.replace(FIRST, job) if isinstance(value, str) else value


def copy_rows(database: Path, jobs: int) -> None:
    """Give the store further jobs with copies of all rows of the first."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for table in TABLES:
            cursor = connection.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            kept = [index for index, name in enumerate(names) if name != COUNTED.get(table)]
            rows = [tuple(row[index] for index in kept) for row in cursor]
            columns = ", ".join(names[index] for index in kept)
            marks = ", ".join("?" * len(kept))
            connection.executemany(
                f"INSERT INTO {table} ({columns}) VALUES ({marks})",
                (
                    tuple(copied(value, f"job-{number}") for value in row)
                    for number in range(1, jobs)
                    for row in rows
                ),
            )
        connection.commit()


def copy_cloud(cloud: QuickCloud, jobs: int) -> None:
    """Give the cloud the instances of the further jobs."""
    with cloud._records() as records:
        first = list(records.values())
        for number in range(1, jobs):
            for record in first:
                copy = json.loads(json.dumps(record).replace(FIRST, f"job-{number}"))
                copy["id"] = f"{record['id']}-{number}"
                copy["token"] = f"{record['token']}-{number}"
                records[copy["token"]] = copy


def set_cloud_ids(database: Path) -> None:
    """Let the further jobs' instances be those that the cloud has."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(
            "UPDATE instances SET cloud_id = cloud_id || '-' || substr(job, 5) WHERE job != ?",
            (FIRST,),
        )
        connection.execute(
            "UPDATE intents SET token = token || '-' || substr("
            "(SELECT job FROM instances WHERE instances.id = intents.instance), 5)"
            " WHERE instance NOT LIKE ?",
            (f"{FIRST}-%",),
        )
        connection.commit()


def measure_steps(deployment: World) -> None:
    """Add step times of the first job on one to eight instances, at two batches."""
    for _ in range(3):
        observations = [
            StepObservation("core", size, size, batch, 0, 0.1 * batch / 32 + 0.01 * size, 0.0, 50)
            for size in SIZES
            for batch in (32, 64)
        ]
        now_seconds = deployment.clock.now()
        deployment.store.measurements.add_observations(FIRST, observations, now_seconds)
        deployment.tick(8)


def deployment_of(directory: Path, jobs: int, instances: int, are_measured: bool = False) -> World:
    """Return a deployment whose jobs all train, and whose controller has not ticked yet.

    If they `are_measured`, each has step times of several sizes.
    """
    led_store(f"sqlite:///{directory / 'castor.db'}").close()
    deployment = World(directory, devices=2 * jobs * instances)
    deployment.submit(FIRST, maximum=instances)
    deployment.set_target(FIRST, instances)
    deployment.tick(4)
    if are_measured:
        measure_steps(deployment)
    deployment.store.close()
    copy_rows(directory / "castor.db", jobs)
    set_cloud_ids(directory / "castor.db")
    assert isinstance(deployment.cloud, QuickCloud)
    copy_cloud(deployment.cloud, jobs)
    for number in range(jobs):
        deployment.set_target(f"job-{number}", instances)
    deployment.restart()
    return deployment


def timed(deployment: World) -> float:
    """Return the processor seconds of one tick."""
    deployment.clock.advance(2.0)
    begin = time.process_time()
    deployment.controller.tick(deployment.clock.now())
    return time.process_time() - begin


def report(deployment: World) -> None:
    """Report for some of the instances, as their agents do."""
    now_seconds = deployment.clock.now()
    for held in deployment.store.instances.alive()[:MOST_REPORTS]:
        deployment.store.instances.record_node(held.id, held.phase, now_seconds)


def first_seconds_measured(jobs: int, instances: int) -> float:
    """Return the processor seconds of the first tick of jobs with step times and stored models."""
    directory = Path(tempfile.mkdtemp())
    try:
        deployment = deployment_of(directory, jobs, instances, are_measured=True)
        first = timed(deployment)
        deployment.store.close()
        return first
    finally:
        shutil.rmtree(directory)


def measure(jobs: int, instances: int) -> Row:
    """Return the figures for so many jobs."""
    directory = Path(tempfile.mkdtemp())
    try:
        deployment = deployment_of(directory, jobs, instances)
        with counted() as first_statements:
            first = timed(deployment)
        timed(deployment)
        quiet = min(timed(deployment) for _ in range(QUIET_TICKS))
        with counted() as statements:
            timed(deployment)
        report(deployment)
        reports = timed(deployment)
        held = len(deployment.store.instances.alive())
        assert held == jobs * instances, f"{held} instances are left"
        deployment.set_target(FIRST, instances + 1)
        with counted() as plan_statements:
            plan = timed(deployment)
        assert deployment.store.journal.decisions(FIRST, 1)[0].decision.target is not None
        deployment.store.close()
        counts = (len(sent) for sent in (first_statements, statements, plan_statements))
        measured = first_seconds_measured(jobs, instances)
        return Row(jobs, held, first, measured, quiet, reports, plan, *counts)
    finally:
        shutil.rmtree(directory)


def measured_rows(
    title: str, description: str, measure: Callable[[int, int], Measured]
) -> tuple[list[Measured], bool]:
    """Return a row for each number of jobs on the command line, and whether JSON is asked for.

    `measure` takes the number of jobs, and of instances of each.
    """
    parser = argparse.ArgumentParser(description=description.split("\n", 1)[0])
    parser.add_argument("--jobs", default="100,1000", help="numbers of jobs, with commas between")
    parser.add_argument("--instances", type=int, default=10, help="instances of each job")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    collect_rarely()  # as `castor serve` does at its start
    world.open_store = led_store  # type: ignore[assignment]
    world.FileCloud = QuickCloud  # type: ignore[misc]
    numbers = [int(count) for count in arguments.jobs.split(",")]
    console = Console(stderr=True)
    rows = [
        measure(count, arguments.instances)
        for count in track(numbers, title, console=console, disable=not console.is_terminal)
    ]
    return rows, arguments.json


def main() -> None:
    """Print a table, or JSON."""
    rows, as_json = measured_rows("ticks", __doc__, measure)
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print("| jobs | instances | first | measured | quiet | reports | plan | statements |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.jobs:,} | {row.instances:,} | {row.first_seconds:.2f} s "
            f"| {row.measured_seconds:.2f} s "
            f"| {row.quiet_seconds:.2f} s | {row.reports_seconds:.2f} s "
            f"| {row.plan_seconds:.2f} s | {row.first_statements}, {row.quiet_statements}, "
            f"{row.plan_statements} |"
        )


if __name__ == "__main__":
    main()
