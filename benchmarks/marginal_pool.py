"""Completion times of `marginal` on a fixed pool, beside those published by Pollux (OSDI'21).

16 machines of 4 T4, 160 jobs in 8 hours. Restarts take 30 s with a plan every 60 s, as published,
with and without what earlier jobs teach about their application. Restarts of 1 s, longer than a
resize takes here (docs/measurements.md), are run with a plan every 60 s and with plans on events,
as in the product. Prints Markdown; `--pollux` runs Pollux too, for its percentiles.

    CASTOR_DATA=... python benchmarks/marginal_pool.py [--workloads 6] [--pollux]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from data_folder import data_folder

from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.simulate.run import run_simulation

PUBLISHED_RESTART_SECONDS = 30.0
# Average completion times of Pollux with these restarts, in seconds, from its artifact's results.
PUBLISHED = {1: 2089.0, 2: 3323.0, 3: 2188.0, 4: 2721.0, 6: 2446.0}


@dataclass(frozen=True, order=True)
class Setup:
    """Policy, seconds of a restart, whether programs are remembered, and when plans are made."""

    policy: str
    restart_seconds: float
    remembers: bool
    replans_on_news: bool = False

    def __str__(self) -> str:
        memory = ", remembering" if self.remembers else ""
        news = ", planned on news" if self.replans_on_news else ""
        return f"{self.policy}{memory}, restarts of {self.restart_seconds:g} s{news}"


@dataclass(frozen=True)
class Measured:
    """Completion times in seconds, and device-hours."""

    average_seconds: float
    ninety_ninth_seconds: float
    device_hours: float


def measure(data: Path, case: tuple[Setup, int]) -> Measured:
    """Run one workload."""
    setup, workload = case
    options = SimulateOptions(
        workload=data / "pollux" / "workloads" / f"workload-{workload}.csv",
        profiles=[data / "pollux" / "app-profiles"],
        cluster="16x4",
        policy=setup.policy,
        restart_seconds=setup.restart_seconds,
        remembers=setup.remembers,
        replans_on_news=setup.replans_on_news,
        published=setup.policy == "pollux",
        device_batches=["yolov3=8"],
    )
    totals = run_simulation(options).totals
    return Measured(totals.avg_jct_s, totals.p99_jct_s, totals.gpu_hours)


def print_table(measured: Mapping[tuple[Setup, int], Measured]) -> None:
    """Print a line for each setup: averages, their difference from published, and the rest."""
    workloads = sorted({workload for _, workload in measured})
    head = " | ".join(f"w{workload}" for workload in workloads)
    print(f"| average completion time, s | {head} | mean | 99th percentiles, s | device hours |")
    print("|---" * (len(workloads) + 4) + "|")
    published = [PUBLISHED[workload] for workload in workloads]
    cells = " | ".join(f"{seconds:,.0f}" for seconds in published)
    print(f"| published Pollux, restarts of 30 s | {cells} | | | |")
    for setup in sorted({setup for setup, _ in measured}):
        setup_rows = [measured[setup, workload] for workload in workloads]
        shares = [
            row.average_seconds / seconds - 1
            for row, seconds in zip(setup_rows, published, strict=True)
        ]
        cells = " | ".join(
            f"{row.average_seconds:,.0f} ({share:+.1%})"
            for row, share in zip(setup_rows, shares, strict=True)
        )
        percentiles = ", ".join(f"{row.ninety_ninth_seconds:,.0f}" for row in setup_rows)
        hours = ", ".join(f"{row.device_hours:,.0f}" for row in setup_rows)
        print(f"| {setup} | {cells} | {fmean(shares):+.1%} | {percentiles} | {hours} |")


def main() -> int:
    """Run all workloads and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workloads", type=int, nargs="*", choices=PUBLISHED, default=[*PUBLISHED]
    )
    parser.add_argument("--pollux", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    data = data_folder("pollux")
    published = PUBLISHED_RESTART_SECONDS
    setups = [
        Setup("marginal", published, remembers=True),
        Setup("marginal", published, remembers=False),
        Setup("marginal", 1.0, remembers=True),
        Setup("marginal", 1.0, remembers=True, replans_on_news=True),
    ]
    if arguments.pollux:
        setups.append(Setup("pollux", published, remembers=False))
    cases = [(setup, workload) for setup in setups for workload in arguments.workloads]
    with ProcessPoolExecutor(arguments.workers) as workers:
        run = partial(measure, data)
        print_table(dict(zip(cases, workers.map(run, cases), strict=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
