"""Commands `castor queue` and `castor top`. They import the tables when called."""

from __future__ import annotations

import json

from autoscaler.cli.options import Json


def queue(as_json: Json = False) -> None:
    """Show the jobs that wait: why, and when they may start.

    They are in the order in which they start, with the price of what they will get. The start is
    an estimate: the boot of what a job gets, or the earliest end of another job.
    """
    from dataclasses import asdict

    from autoscaler.cli.live import print_whole
    from autoscaler.cli.queue import queue as queue_of
    from autoscaler.cli.queue import queue_table
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    client = connect()
    rows = queue_of(client.jobs(include_ended=False), client.fleet(), SystemClock().now())
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print_whole(queue_table(rows))


def top(as_json: Json = False) -> None:
    """Show running jobs by $/h, and what they bring.

    The table is refreshed until q is pressed. `next $/h` is what the next dollar an hour would
    bring, as the last decision compared it. Without a terminal, and with --json, the jobs are
    printed once.
    """
    from dataclasses import asdict

    from autoscaler.cli.top import run_top, top_jobs
    from autoscaler.wire.connection import connect

    client = connect()
    if as_json:
        rows = [asdict(row) for row in top_jobs(client.jobs(include_ended=False))]
        print(json.dumps(rows, indent=2, default=str))
        return
    run_top(lambda: (client.jobs(include_ended=False), client.fleet()))
