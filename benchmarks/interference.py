"""Distributed jobs that slow each other down, with and without Pollux's avoidance of it.

Runs are as in published_schedulers.py, but a distributed job that shares a machine with another
loses a fraction of its speed. CASTOR_DATA must name the folder that holds pollux and golden. The
golden file has the means of eight workloads, of which five are available. The results of single
workloads are from the result files of the same artifact (petuum/adaptdl, branch osdi21-artifact,
simulator/results-inter). Prints Markdown.

    CASTOR_DATA=... python benchmarks/interference.py [--workloads 6]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from data_folder import data_folder

from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.simulate.run import run_simulation

# Average completion times without avoidance, in seconds, by fraction of speed lost and workload.
PUBLISHED = {
    0.0: {1: 2102, 2: 3354, 3: 2187, 4: 2729, 6: 2442},
    0.25: {1: 2566, 2: 3683, 3: 2378, 4: 3153, 6: 2808},
    0.5: {1: 3467, 2: 4323, 3: 2596, 4: 4032, 6: 3457},
}
# Average completion times with avoidance, in seconds, at any loss of speed.
PUBLISHED_AVOIDING = {1: 2089, 2: 3323, 3: 2188, 4: 2721, 6: 2446}
GOLDEN_KEYS = {0.0: "noavoid_0", 0.25: "noavoid_25pct", 0.5: "noavoid_50pct"}


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    policy: str
    interference: float


CASES = (
    Case("pollux", 0.0),
    Case("pollux", 0.5),
    *(Case("pollux-crowded", share) for share in PUBLISHED),
)


def average_seconds(data: Path, workload: int, case: Case) -> float:
    """Return the average completion time of one workload, in seconds."""
    options = SimulateOptions(
        workload=data / "pollux" / "workloads" / f"workload-{workload}.csv",
        profiles=[data / "pollux" / "app-profiles"],
        cluster="16x4",
        policy=case.policy,
        restart_seconds=30.0,
        interference=case.interference,
        published=True,
        device_batches=["yolov3=8"],
    )
    return run_simulation(options).totals.avg_jct_s


def main() -> None:
    """Run all cases, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    all_workloads = sorted(PUBLISHED_AVOIDING)
    parser.add_argument(
        "--workloads", nargs="*", type=int, choices=all_workloads, default=all_workloads
    )
    workloads = parser.parse_args().workloads
    data = data_folder("pollux and golden")
    golden = json.loads((data / "golden" / "pollux-osdi21-sim.json").read_text())
    hours = golden["interference_avg_jct_h"]
    print("| avoidance | speed lost | published, s | here, s | | published, h (mean of 8) |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        avoids = case.policy == "pollux"
        published_by_workload = PUBLISHED_AVOIDING if avoids else PUBLISHED[case.interference]
        published = fmean(published_by_workload[workload] for workload in workloads)
        here = fmean(average_seconds(data, workload, case) for workload in workloads)
        mean_of_eight = hours["avoid" if avoids else GOLDEN_KEYS[case.interference]]
        print(
            f"| {'on' if avoids else 'off'} | {case.interference:.0%} | {published:,.0f} "
            f"| {here:,.0f} | {here / published - 1:+.1%} | {mean_of_eight} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
