"""Time and size of one answer of `/metrics`, by the number of jobs in the store.

    python benchmarks/metrics.py [--jobs 100,1000,10000] [--instances 10] [--json]

The jobs of an SQLite store train on `--instances` instances each, and each has a training report.
The controller leads its store and has ticked. `first` is the first answer after its start, `next`
a later one, `changed` one after a new report of every job. Times are of the processor, in seconds;
`statements` are those of a later answer. All jobs have series, whatever `--metrics-jobs` would be.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

sys.path.insert(0, str(Path(__file__).parents[1]))

from ticks import deployment_of, measured_rows

from autoscaler.clock import SystemClock
from autoscaler.domain.report import ReportOrigin
from autoscaler.loop_watch import LoopState
from autoscaler.service.health import Health
from autoscaler.service.instances.gpu_uses import GpuUses
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.service.request_meter import RequestMeter
from autoscaler.telemetry.meters import Meters
from autoscaler.telemetry.metrics_page import MetricSources, MetricsPage
from tests.conformance.store_examples import model
from tests.controller.world import World
from tests.store.test_statements import counted
from tests.telemetry.conftest import REPORT

ALL = 1 << 30
KIND = "core"  # of the cloud's offers


@dataclass(frozen=True)
class Row:
    """Figures for one number of jobs."""

    jobs: int
    instances: int
    first_seconds: float
    next_seconds: float
    changed_seconds: float
    statements: int
    megabytes: float


def report_all(deployment: World) -> None:
    """Store a training report of each job, and its model."""
    store, now_seconds = deployment.store, deployment.clock.now()
    with store.grouped():
        for job in store.jobs.alive():
            held = store.instances.of_job(job.id)[0]
            store.reports.add(job.id, REPORT, ReportOrigin(held.id, 1, 1.0), now_seconds)
            store.measurements.save_models(job.id, {KIND: model(kind=KIND)})


def page_of(deployment: World) -> MetricsPage:
    """Return the metrics of a deployment."""
    health = Health("leader", LoopState(0.5, 0.5), None, 1.0)
    status, clock = deployment.controller.status, deployment.clock
    return MetricsPage(
        MetricSources(
            store=deployment.store,
            status=status,
            health=lambda: health,
            meters=Meters(clock),
            clock=clock,
            version="0",
            fleet_usd=None,
            most_jobs=ALL,
            gpu_uses=GpuUses(),
            billed_seconds=Receipts(deployment.store, status).billed_seconds,
        )
    )


def timed(deployment: World, page: MetricsPage) -> tuple[float, int]:
    """Return the processor seconds and the bytes of one answer, a scrape's interval later."""
    deployment.clock.advance(15.0)  # some receipts are due
    begin = time.process_time()
    text, _ = page.text("")
    return time.process_time() - begin, len(text)


def measure(jobs: int, instances: int) -> Row:
    """Return the figures for so many jobs."""
    directory = Path(tempfile.mkdtemp())
    try:
        deployment = deployment_of(directory, jobs, instances)
        deployment.clock.advance(2.0)
        deployment.controller.tick(deployment.clock.now())
        report_all(deployment)
        page = page_of(deployment)
        first, _ = timed(deployment, page)
        later = min(timed(deployment, page)[0] for _ in range(3))
        with counted() as statements:
            _, size = timed(deployment, page)
        report_all(deployment)
        changed, _ = timed(deployment, page)
        held = len(deployment.store.instances.alive())
        deployment.store.close()
        return Row(jobs, held, first, later, changed, len(statements), size / 1e6)
    finally:
        shutil.rmtree(directory)


def request_microseconds(requests: int = 50_000) -> float:
    """Return the processor time of counting one request."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def drop(message: Message) -> None: ...

    async def nothing() -> Message:
        return {}

    async def run(answer: ASGIApp) -> float:
        begin = time.process_time()
        for _ in range(requests):
            scope = {"type": "http", "method": "POST", "path": "/v1/node/heartbeat"}
            await answer(scope, nothing, drop)
        return time.process_time() - begin

    meter = RequestMeter(app, Meters(SystemClock()).answered, SystemClock())
    pairs = [asyncio.run(run(meter)) - asyncio.run(run(app)) for _ in range(5)]
    return min(pairs) / requests * 1e6


def main() -> None:
    """Print a table, or JSON."""
    rows, as_json = measured_rows("metrics", __doc__, measure)
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print("| jobs | instances | first | next | changed | statements | size |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.jobs:,} | {row.instances:,} | {row.first_seconds:.2f} s "
            f"| {row.next_seconds:.2f} s | {row.changed_seconds:.2f} s | {row.statements} "
            f"| {row.megabytes:.1f} MB |"
        )
    print(f"\ncounting one request: {request_microseconds():.1f} microseconds")


if __name__ == "__main__":
    main()
