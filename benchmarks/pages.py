"""Latency of pages of the list of jobs, for several numbers of jobs.

    python benchmarks/pages.py [--jobs 100,10000 --limit 50]

The server of the product answers over HTTP, with an SQLite store that it leads. A tenth of the
jobs train on one instance each; the others have ended, each after one instance, and some of them
failed. Each job has as many decisions as `--decisions`. Times are of whole requests: the median,
and the longest of `--repeats`; `processor` is the mean of server and client together. `last page`
begins before the oldest jobs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.report import Failure, ReportOrigin
from autoscaler.service.routes.pages import cursor_of
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    decision,
    end,
    full_spec,
    launch,
    plan,
    report,
    snapshot,
)
from tests.controller import world
from tests.controller.world import World
from tests.service.conftest import TOKEN, served
from tests.store.led import led_store

LISTS: Mapping[str, str] = {
    "first page": "",
    "last page": "&cursor={cursor}",
    "not ended": "&include_ended=false",
    "failed": "&phase=failed",
    "of a person": "&person=person-7",
    "part of the name": "&q=ob-{tenth}",
    "no such name": "&q=zebra",
    "by name": "&sort=name",
}
PERSONS = 50
AT_ONCE = 100


def add_job(store: Store, number: int) -> None:
    """Add a job as it is some time after its submission."""
    person = f"person-{number % PERSONS}"
    spec = replace(full_spec(), name=f"job-{number}", person=person, team="nlp", study=None)
    job = store.jobs.add(spec, NOW).id
    held = launch(store, job)
    store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 10)
    store.jobs.set_phase(job, JobPhase.RUNNING, NOW + 10)
    store.reports.add(job, report(), ReportOrigin(held.id, 1, NOW), NOW + 20)
    if number % 10 == 0:
        return
    end(store, held.id)
    if number % 5 == 1:
        store.reports.add_failure(job, Failure(held.id, 1, 1, "ended", "s", 7), NOW + 90)
        store.jobs.set_phase(job, JobPhase.FAILED, NOW + 100)
    else:
        store.jobs.set_phase(job, JobPhase.FINISHED, NOW + 100)


def fill(store: Store, jobs: int, decisions: int, console: Console) -> None:
    """Add jobs to a store."""
    firsts = range(0, jobs, AT_ONCE)
    for first in track(firsts, f"{jobs} jobs", console=console, disable=not console.is_terminal):
        with store.grouped():
            numbers = range(first, min(first + AT_ONCE, jobs))
            for number in numbers:
                add_job(store, number)
            for tick in range(decisions):
                made = tuple(decision(f"job-{number}", f"grow {tick}") for number in numbers)
                store.journal.add(first + tick, NOW + tick, snapshot(), plan(*made), made)


def measure(url: str, query: str, repeats: int) -> tuple[float, float, float, int]:
    """Return median and maximum of milliseconds, those of the processor, and the rows."""
    times: list[float] = []
    begin_processor = 0.0
    rows = 0
    with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
        client.get(f"{url}/v1/jobs?{query}")  # opens the connection
        begin_processor = time.process_time()
        for _ in range(repeats):
            begin = time.perf_counter()
            reply = client.get(f"{url}/v1/jobs?{query}")
            times.append(1000 * (time.perf_counter() - begin))
            assert reply.status_code == 200, reply.text
            rows = len(reply.json())
    processor = 1000 * (time.process_time() - begin_processor) / repeats
    return statistics.median(times), max(times), processor, rows


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", default="100,10000", help="numbers of jobs, with commas between")
    parser.add_argument("--limit", type=int, default=50, help="rows of a page")
    parser.add_argument("--decisions", type=int, default=5, help="decisions of each job")
    parser.add_argument("--repeats", type=int, default=30, help="requests of each kind")
    arguments = parser.parse_args()
    world.open_store = led_store  # type: ignore[assignment]
    console = Console(stderr=True)
    print("| jobs | list | rows | median | longest | processor |")
    print("|---|---|---|---|---|---|")
    for jobs in (int(count) for count in arguments.jobs.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            directory = Path(scratch)
            led_store(f"sqlite:///{directory / 'castor.db'}").close()
            deployment = World(directory)
            with served(deployment, directory, completes_pages=False) as api:
                fill(deployment.store, jobs, arguments.decisions, console)
                cursor = cursor_of("jobs newest", arguments.limit + 1, "job-0")
                for name, filters in LISTS.items():
                    query = filters.format(cursor=cursor, tenth=jobs // 10)
                    query = f"limit={arguments.limit}{query}"
                    median, longest, processor, rows = measure(api.url, query, arguments.repeats)
                    print(
                        f"| {jobs:,} | {name} | {rows} | {median:.0f} ms | {longest:.0f} ms "
                        f"| {processor:.1f} ms |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
