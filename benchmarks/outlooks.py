"""Time of curve, outlook, what-if, next plan and history of a running job.

    python benchmarks/outlooks.py [--instances 16] [--others 1000] [--json]

The job may hold up to `--instances` of each of 24 offers (12 types of 4 kinds of device, on-demand
and spot), with 32 draws, and trains on one of them beside other jobs with one instance each. The
store is in memory and the model is stored; nothing is fitted. `first` is the first answer of a
process, `again` and `longest` are the median and the longest of 20 further ones, a what-if each
with another objective. Times are those of a clock, without HTTP and JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from planning import jobs, models, offers

from autoscaler.clock import VirtualClock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.predict.live_jobs import LiveJobs
from autoscaler.domain.goodput import BatchBounds, NoiseScale
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.report import ReportOrigin
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.registry import create_policy
from autoscaler.service.jobs.histories import Histories
from autoscaler.service.jobs.outlooks import Outlooks
from autoscaler.store.memory.store import memory_store
from autoscaler.store.repositories.jobs import with_changes
from autoscaler.store.store import Store
from autoscaler.wire.outlook_messages import Hypothesis
from tests.conformance.store_examples import NOW, launch, report

REPEATS = 20
REPORTS = 3_000


@dataclass(frozen=True)
class Row:
    """Times of one question, in milliseconds."""

    question: str
    first_ms: float
    again_ms: float
    longest_ms: float


def deployment(instances: int, others: int) -> tuple[Store, ControllerStatus, VirtualClock]:
    """Return the state of a controller whose first job trains, with the reports of an hour."""
    store, market = memory_store(), offers()
    held_offer = next(offer for offer in market if offer.id == "t4-1-on-demand")
    bounds = InstanceBounds(1, instances)
    for number in range(others + 1):
        job = store.jobs.add(JobSpec(f"job-{number}", ("train",), instances=bounds), NOW).id
        held = launch(store, job, held_offer)
        store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 5)
        if number:
            continue
        origin = ReportOrigin(held.id, 1, NOW + 5)
        for step in range(REPORTS):
            latest = report(
                100 * step,
                total_examples=1e8,
                bounds=BatchBounds(64, 4096, 128, adaptive=True),
                noise=NoiseScale(64, 1.0, 3.0, 0.2),
                observations=(),
            )
            store.reports.add(job, latest, origin, NOW + 6 + step)
        store.measurements.save_models(job, models(np.random.default_rng(0)))
    snapshot = Snapshot(NOW, market, (), jobs(others))
    return (
        store,
        ControllerStatus(offers=market, snapshot=snapshot),
        VirtualClock(NOW + 6.0 + REPORTS),
    )


def timed(question: str, ask: Callable[[int], object]) -> Row:
    """Return the times of a question, which is asked with the number of the repeat."""
    times = []
    for repeat in range(REPEATS + 1):
        begun = time.perf_counter()
        ask(repeat)
        times.append(1000 * (time.perf_counter() - begun))
    return Row(question, times[0], median(times[1:]), max(times[1:]))


def measure(instances: int, others: int) -> list[Row]:
    """Return the times of all questions."""
    store, status, clock = deployment(instances, others)
    live = LiveJobs(store, status, 60.0, clock, create_policy("marginal"))
    outlooks, histories = Outlooks(store, live, clock), Histories(store, clock)
    job = store.jobs.get("job-0")
    deadline = clock.now() + 3600.0
    rows = [
        timed("curve", lambda repeat: outlooks.curve(job)),
        timed("outlook", lambda repeat: outlooks.outlook(job)),
        timed(
            "what-if, value of time",
            lambda repeat: outlooks.what_if(
                job, Hypothesis(value_of_time_usd_per_hour=0.1 * 1.4**repeat)
            ),
        ),
        timed(
            "what-if, deadline",
            lambda repeat: outlooks.what_if(
                job, Hypothesis(deadline_seconds=deadline + 1800.0 * repeat)
            ),
        ),
        timed(
            "next plan of a change",
            lambda repeat: live.next_decision(with_changes(job, None, None, 1.5 + repeat), job),
        ),
        timed("history", lambda repeat: histories.of(job, 0.0, 300)),
    ]
    assert outlooks.outlook(replace(job)).missing is None
    return rows


def main() -> None:
    """Print the times as a table, or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--others", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.instances, options.others)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    table = Table("question", "first", "again", "longest", box=None)
    for row in rows:
        times = (row.first_ms, row.again_ms, row.longest_ms)
        table.add_row(row.question, *(f"{milliseconds:.1f} ms" for milliseconds in times))
    Console().print(table)


if __name__ == "__main__":
    main()
