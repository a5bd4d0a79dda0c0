"""Size of a controller's state after days of jobs: ``python benchmarks/state_growth.py``.

Each job takes one instance and has five plans, a failure, a log and a bundle; every second one is
a trial with 20 calls. Prints rows, bytes and the longest single write while old rows are deleted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from autoscaler.store.opening import open_store
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store
from tests.builders.days import DAY_SECONDS, Days

_EVERY_DAYS = 15


def main() -> None:
    """Let the days pass, and print a line each 15 days."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--jobs", type=int, default=20, help="jobs a day")
    parser.add_argument("--keep", type=int, default=30, help="days that old facts are kept")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch)
        url = f"sqlite:///{state / 'castor.db'}"
        store = open_store(url)
        days = Days(store, url, state, arguments.keep * DAY_SECONDS)
        print("day   jobs  other rows  database MB  other files MB")
        for day in range(1, arguments.days + 1):
            days.pass_day(arguments.jobs)
            if day % _EVERY_DAYS == 0:
                _print_sizes(day, days)
        before = days.sizes().rows["jobs"]
        print(f"all at once: {_prune_at_once(store, days):.0f} ms for the longest call")
        print(f"left: {days.sizes().database_bytes / before:.0f} bytes of database a job")
        days.close()
        store.close()


def _print_sizes(day: int, days: Days) -> None:
    sizes = days.sizes()
    kept = {"jobs", "instances", "ledger"}
    others = sum(count for table, count in sizes.rows.items() if table not in kept)
    files_bytes = sizes.state_bytes - sizes.database_bytes
    print(
        f"{day:3} {sizes.rows['jobs']:6} {others:11} {sizes.database_bytes / 1e6:12.1f} "
        f"{files_bytes / 1e6:15.1f}",
        flush=True,
    )


def _prune_at_once(store: Store, days: Days) -> float:
    """Delete all old facts in small steps, with a write after each; return the longest in ms."""
    longest_seconds, is_more_left = 0.0, True
    while is_more_left:
        begun_seconds = time.perf_counter()
        is_more_left = store.retention.prune(days.clock.now() + DAY_SECONDS)
        store.events.add(Event(days.clock.now() + 2 * DAY_SECONDS, "test", "a write"))
        longest_seconds = max(longest_seconds, time.perf_counter() - begun_seconds)
    return 1e3 * longest_seconds


if __name__ == "__main__":
    main()
