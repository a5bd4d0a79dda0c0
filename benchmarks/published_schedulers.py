"""Published schedulers on published workloads: our averages beside the published ones.

Every run uses the real controller on a virtual clock. The pool `equal` has 16 machines of 4 T4
devices, restarts of 30 s and a plan every 60 s, with the quirks of the simulator of Pollux
(OSDI'21). The pool `mixed` has 64 devices of three kinds (sia-pool.yaml), as in the simulator of
Sia (SOSP'23); a rerun of that simulator gives the results called published. CASTOR_DATA must name
the folder that holds pollux, hetero and golden. Prints Markdown.

    CASTOR_DATA=... python benchmarks/published_schedulers.py [--loads 1.0] [--policies tiresias]
    CASTOR_DATA=... python benchmarks/published_schedulers.py --pools mixed
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from data_folder import data_folder

from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.simulate.run import run_simulation

POLICIES = {"tiresias": "tiresias", "optimus": "optimus-oracle", "pollux": "pollux"}
MIXED_POOL = Path(__file__).with_name("sia-pool.yaml")
FOLDERS = {"0.5": "workloads-0.5", "1.0": "workloads", "1.5": "workloads-1.5"}


@dataclass(frozen=True)
class Measured:
    """Result of one workload under one policy."""

    average_seconds: float
    ninety_ninth_seconds: float
    makespan_seconds: float
    device_hours: float
    restarts: int
    decision_ms: float


@dataclass(frozen=True)
class MixedRun:
    """Settings of one policy on the mixed pool.

    `is_profiled` says whether the policy knows profiles of new jobs; Pollux does not.
    """

    policy: str
    interval_seconds: float = 60.0
    is_profiled: bool = True
    replans_on_news: bool = False


# Runs by the name of the published one; `marginal` has none. `marginal` also plans on events, as
# the product does, and so does Sia for comparison.
MIXED = {
    "sia": MixedRun("sia"),
    "pollux_unaware": MixedRun("pollux-unaware", is_profiled=False),
    "gavel": MixedRun("gavel", interval_seconds=360.0),
    "marginal": MixedRun("marginal"),
    "sia, on news": MixedRun("sia", replans_on_news=True),
    "marginal, on news": MixedRun("marginal", replans_on_news=True),
}


def measure(data: Path, case: tuple[Path, str]) -> Measured:
    """Return the result of one workload."""
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
    return measured(options)


def measure_mixed(data: Path, run: MixedRun) -> Measured:
    """Return the result of workload 6 on the pool of three kinds."""
    with TemporaryDirectory() as folder:
        pool = Path(folder) / MIXED_POOL.name
        text = MIXED_POOL.read_text()
        pool.write_text(text if run.is_profiled else text.replace("profiled: true", ""))
        options = SimulateOptions(
            workload=data / "hetero" / "workloads" / "workload-6.csv",
            profiles=[data / "hetero", data / "pollux" / "app-profiles"],
            cluster=str(pool),
            policy=run.policy,
            interval_seconds=run.interval_seconds,
            replans_on_news=run.replans_on_news,
            published=True,
        )
        return measured(options)


def measured(options: SimulateOptions) -> Measured:
    """Return the result of a simulation with these options."""
    totals = run_simulation(options).totals
    return Measured(
        totals.avg_jct_s,
        totals.p99_jct_s,
        totals.makespan_s,
        totals.gpu_hours,
        totals.restarts,
        totals.decision_ms_p50,
    )


def print_mixed(golden: Mapping[str, Mapping[str, float]], rows: Mapping[str, Measured]) -> None:
    """Print the results of workload 6 on three kinds of device."""
    print(
        "| three kinds, workload-6 | published, s | here, s | | 99th percentile, s | makespan, s "
        "| device hours (published) | restarts |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        published, difference, hours = "", "", ""
        if name in golden:
            published = f"{golden[name]['avg_jct_s']:,.0f}"
            difference = f"{row.average_seconds / golden[name]['avg_jct_s'] - 1:+.1%}"
            hours = f" ({golden[name]['gpu_hours']:,.0f})"
        print(
            f"| {name} | {published} | {row.average_seconds:,.0f} | {difference} "
            f"| {row.ninety_ninth_seconds:,.0f} | {row.makespan_seconds:,.0f} "
            f"| {row.device_hours:,.0f}{hours} | {row.restarts} |"
        )


def print_workload(golden: Mapping[str, float], rows: Mapping[str, Measured]) -> None:
    """Print the results of workload 6, which has a published figure of its own."""
    print(
        "| workload-6 | published, s | here, s | | 99th percentile, s | device hours | restarts |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        published = golden[name]
        difference = row.average_seconds / published - 1
        print(
            f"| {name} | {published:,.0f} | {row.average_seconds:,.0f} | {difference:+.1%} "
            f"| {row.ninety_ninth_seconds:,.0f} | {row.device_hours:,.0f} | {row.restarts} |"
        )


def print_load(
    load: str, golden: Mapping[str, float], rows: Mapping[str, Sequence[Measured]]
) -> None:
    """Print the mean over the workloads of a load; the published mean is of eight."""
    for name, measured in rows.items():
        mean_hours = fmean(row.average_seconds for row in measured) / 3600
        difference = mean_hours / golden[name] - 1
        print(
            f"| {load} | {name} | {golden[name]:.2f} | {mean_hours:.2f} | {difference:+.0%} "
            f"| {len(measured)} |"
        )


def run_mixed(data: Path) -> None:
    """Run the pool of three kinds and print its table."""
    golden = json.loads((data / "golden" / "sia-philly6-rerun.json").read_text())
    with ProcessPoolExecutor() as pool:
        results = pool.map(partial(measure_mixed, data), MIXED.values())
        print_mixed(golden["policies"], dict(zip(MIXED, results, strict=True)))


def run_equal(data: Path, loads: Sequence[str], policies: Sequence[str]) -> None:
    """Run the pool of one kind and print its tables."""
    golden = json.loads((data / "golden" / "pollux-osdi21-sim.json").read_text())
    cases = [
        (workload, POLICIES[name])
        for load in loads
        for workload in sorted((data / "pollux" / FOLDERS[load]).glob("*.csv"))
        for name in policies
    ]
    with ProcessPoolExecutor() as pool:
        results = dict(zip(cases, pool.map(partial(measure, data), cases), strict=True))
    sixth = data / "pollux" / "workloads" / "workload-6.csv"
    if "1.0" in loads:
        sixth_results = {name: results[sixth, POLICIES[name]] for name in policies}
        print_workload(golden["workload6_avg_jct_s"], sixth_results)
        print()
    print("| load | policy | published, h (mean of 8) | here, h | | workloads here |")
    print("|---|---|---|---|---|---|")
    for load in loads:
        rows = {
            name: [
                results[case]
                for case in cases
                if case[0].parent.name == FOLDERS[load] and case[1] == POLICIES[name]
            ]
            for name in policies
        }
        print_load(load, golden["jobload_avg_jct_h"][load], rows)


def main() -> None:
    """Run, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    pools = ("equal", "mixed")
    parser.add_argument("--pools", nargs="*", choices=pools, default=pools)
    parser.add_argument("--loads", nargs="*", choices=FOLDERS, default=list(FOLDERS))
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    arguments = parser.parse_args()
    data = data_folder("pollux, hetero and golden")
    if "equal" in arguments.pools:
        run_equal(data, arguments.loads, arguments.policies)
        print()
    if "mixed" in arguments.pools:
        run_mixed(data)


if __name__ == "__main__":
    main()
