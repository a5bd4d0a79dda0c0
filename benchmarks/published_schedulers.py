"""Published schedulers on published workloads: our averages beside the published ones.

Every run is the real controller on a virtual clock, on 16 machines of 4 T4 devices with restarts
of 30 s, a plan every 60 s and the quirks of the simulator of Pollux (OSDI'21), whose profiles,
workloads and results are read: CASTOR_DATA must name the folder that holds pollux and golden.
Prints Markdown.

    CASTOR_DATA=... python benchmarks/published_schedulers.py [--loads 1.0] [--policies tiresias]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from autoscaler.cli.simulation import SimulateOptions, run_simulation

POLICIES = {"tiresias": "tiresias", "optimus": "optimus-oracle", "pollux": "pollux"}
FOLDERS = {"0.5": "workloads-0.5", "1.0": "workloads", "1.5": "workloads-1.5"}


@dataclass(frozen=True)
class Measured:
    """One workload under one policy."""

    average_seconds: float
    ninety_ninth_seconds: float
    device_hours: float
    restarts: int
    decision_ms: float


def measure(data: Path, case: tuple[Path, str]) -> Measured:
    """Run one workload."""
    workload, policy = case
    options = SimulateOptions(
        workload=workload,
        profiles=[data / "pollux" / "app-profiles"],
        cluster="16x4",
        policy=policy,
        restart_seconds=30.0,
        published=True,
        device_batches=["yolov3=8"],
    )
    totals = run_simulation(options).totals
    return Measured(
        totals.avg_jct_s,
        totals.p99_jct_s,
        totals.gpu_hours,
        totals.restarts,
        totals.decision_ms_p50,
    )


def print_workload(golden: Mapping[str, float], rows: Mapping[str, Measured]) -> None:
    """Workload 6, for which there is a published figure of its own."""
    print(
        "| workload-6 | published, s | here, s | | 99th percentile, s | device hours | restarts |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        published = golden[name]
        off = row.average_seconds / published - 1
        print(
            f"| {name} | {published:,.0f} | {row.average_seconds:,.0f} | {off:+.1%} "
            f"| {row.ninety_ninth_seconds:,.0f} | {row.device_hours:,.0f} | {row.restarts} |"
        )


def print_load(
    load: str, golden: Mapping[str, float], rows: Mapping[str, Sequence[Measured]]
) -> None:
    """The mean over the workloads of a load; published is the mean of eight."""
    for name, measured in rows.items():
        mean_hours = fmean(row.average_seconds for row in measured) / 3600
        off = mean_hours / golden[name] - 1
        print(
            f"| {load} | {name} | {golden[name]:.2f} | {mean_hours:.2f} | {off:+.0%} "
            f"| {len(measured)} |"
        )


def main() -> None:
    """Run, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loads", nargs="*", choices=FOLDERS, default=list(FOLDERS))
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    arguments = parser.parse_args()
    if "CASTOR_DATA" not in os.environ:
        sys.exit("CASTOR_DATA is not set: it must name the folder of the published data")
    data = Path(os.environ["CASTOR_DATA"])
    golden = json.loads((data / "golden" / "pollux-osdi21-sim.json").read_text())
    cases = [
        (workload, POLICIES[name])
        for load in arguments.loads
        for workload in sorted((data / "pollux" / FOLDERS[load]).glob("*.csv"))
        for name in arguments.policies
    ]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(cases, pool.map(partial(measure, data), cases), strict=True))
    sixth = data / "pollux" / "workloads" / "workload-6.csv"
    if "1.0" in arguments.loads:
        own = {name: found[sixth, POLICIES[name]] for name in arguments.policies}
        print_workload(golden["workload6_avg_jct_s"], own)
        print()
    print("| load | policy | published, h (mean of 8) | here, h | | workloads here |")
    print("|---|---|---|---|---|---|")
    for load in arguments.loads:
        rows = {
            name: [
                found[case]
                for case in cases
                if case[0].parent.name == FOLDERS[load] and case[1] == POLICIES[name]
            ]
            for name in arguments.policies
        }
        print_load(load, golden["jobload_avg_jct_h"][load], rows)


if __name__ == "__main__":
    main()
