"""Time of curve, outlook, what-if, next plan and history of a running job.

    python benchmarks/outlooks.py [--instances 16] [--others 1000] [--processor] [--json]

The job may hold up to `--instances` of each of 24 offers (12 types of 4 kinds of device, on-demand
and spot), with 32 draws, and trains on one of them beside other jobs with one instance each. The
store is in memory and the model is stored; nothing is fitted. `first` is the first answer of a
process, `again` and `longest` are the median and the longest of 20 further ones, a what-if each
with another objective. Times are those of a clock, or of the processor with `--processor`. Rows
with a path are requests over HTTP, with JSON or HTML; of the processor, those of the client, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import httpx
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
from tests.browser.fleets import FleetState
from tests.conformance.store_examples import NOW, launch, report
from tests.service.conftest import TOKEN, served

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


Timed = Callable[[str, Callable[[int], object]], Row]


def timer_of(seconds: Callable[[], float]) -> Timed:
    """Return a function that times a question, which is asked with the number of the repeat."""

    def timed(question: str, ask: Callable[[int], object]) -> Row:
        times = []
        for repeat in range(REPEATS + 1):
            begun = seconds()
            ask(repeat)
            times.append(1000 * (seconds() - begun))
        return Row(question, times[0], median(times[1:]), max(times[1:]))

    return timed


def requests(fleet: FleetState, timed: Timed) -> list[Row]:
    """Return the times of requests over HTTP."""
    deadline = fleet.clock.now() + 3600.0
    world: Any = fleet
    with (
        tempfile.TemporaryDirectory() as directory,
        served(world, Path(directory), completes_pages=False) as api,
    ):
        client = httpx.Client(base_url=api.url, headers={"Accept": "text/html"}, timeout=60)
        assert client.post("/sign-in", data={"token": TOKEN}).status_code == 303
        token = {"Authorization": f"Bearer {TOKEN}"}

        def page(path: str) -> None:
            assert client.get(path).status_code == 200

        def what_if(repeat: int) -> None:
            body = {"deadline_seconds": deadline + 1800.0 * repeat}
            reply = client.post("/v1/jobs/job-0/what-if", json=body, headers=token)
            assert reply.status_code == 200, reply.text

        return [
            timed("POST /v1/jobs/job-0/what-if", what_if),
            timed(
                "GET /jobs/job-0/what-if, a slider",
                lambda repeat: page(f"/jobs/job-0/what-if?value={0.1 * 1.4**repeat:.3f}"),
            ),
            timed("GET /jobs/job-0", lambda repeat: page("/jobs/job-0")),
        ]


def measure(instances: int, others: int, timed: Timed) -> list[Row]:
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
        *requests(FleetState(store, status, clock), timed),
    ]
    assert outlooks.outlook(replace(job)).missing is None
    return rows


def main() -> None:
    """Print the times as a table, or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--instances", type=int, default=16)
    parser.add_argument("--others", type=int, default=1000)
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    timed = timer_of(time.process_time if options.processor else time.perf_counter)
    rows = measure(options.instances, options.others, timed)
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
