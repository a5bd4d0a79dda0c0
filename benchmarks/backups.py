"""Time and size of a backup and of its restoration, for several numbers of jobs.

    python benchmarks/backups.py [--jobs 1000,10000]

The SQLite store has the jobs of `benchmarks/pages.py`, each with five decisions; there are no
bundles and logs, whose time is that of copying. Both times include the check of every byte of the
archive, that of a restoration also the opening of the store. `processor` is the time of both.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import pages
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.backup.making import make_backup
from autoscaler.backup.restoring import restore_backup
from autoscaler.service.access.authentication import load_key
from autoscaler.state_directory import let_owner_in
from tests.conformance.store_examples import NOW
from tests.store.led import led_store

DECISIONS = 5


def measure(directory: Path, jobs: int) -> str:
    """Return a row of the table."""
    state, file = directory / "state", directory / "a.backup"
    state.mkdir()
    store = led_store(f"sqlite:///{state / 'castor.db'}")
    pages.fill(store, jobs, DECISIONS, Console(stderr=True))
    store.settings.controller_id()
    load_key(state / "secret.key")
    let_owner_in(state, "http://127.0.0.1:8470")
    began, used = time.perf_counter(), time.process_time()
    made = make_backup(file, state, None, NOW)
    backed_up = time.perf_counter()
    restore_backup(file, directory / "restored", None, NOW)
    restored = time.perf_counter()
    store.close()
    return (
        f"| {jobs:,} | {made.bytes / 1e6:.0f} MB | {backed_up - began:.1f} s "
        f"| {restored - backed_up:.1f} s | {time.process_time() - used:.1f} s |"
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", default="1000,10000", help="numbers of jobs, with commas")
    arguments = parser.parse_args()
    print("| jobs | archive | backup | restoration | processor |")
    print("|---|---|---|---|---|")
    for jobs in (int(count) for count in arguments.jobs.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            print(measure(Path(scratch), jobs), flush=True)


if __name__ == "__main__":
    main()
