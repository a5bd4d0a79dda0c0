"""The schedulers of Shockwave (NSDI'23) on its 120 jobs and 32 devices.

Every run uses the real controller on a virtual clock: 8 machines of 4 devices, rounds of 120 s,
and 20 s for every start, as in the simulator of Shockwave. CASTOR_DATA must name the folder that
holds shockwave and golden. Prints Markdown, ours beside the artifact's own result files.

    CASTOR_DATA=... python benchmarks/shockwave_schedulers.py [--policies shockwave themis]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from data_folder import data_folder

from autoscaler.cli.simulate.options import SimulateOptions
from autoscaler.cli.simulate.run import run_simulation
from autoscaler.simulator.results import Totals

# Name of our policy -> name of its counterpart in the artifact.
POLICIES = {
    "shockwave": "shockwave",
    "themis": "finish_time_fairness (Themis)",
    "gavel-finish-time-fairness": "finish_time_fairness (Themis)",
    "gavel-max-min": "max_min_fairness (Gavel)",
    "allox": "allox",
    "gandiva-fair-by-time": "gandiva_fair",
    "gandiva-fair": "gandiva_fair",
}
TRACE = "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"
HEADER = (
    "| | makespan, h | here | | unfair, % | here | worst rho | here | average JCT, h | here "
    "| restarts | plan, ms |"
)


def measure(data: Path, policy: str) -> Totals:
    """Return the result of the trace under one policy."""
    options = SimulateOptions(
        workload=data / "shockwave" / TRACE,
        regimes=data / "shockwave" / "profiles-tailfixed",
        cluster="8x4",
        policy=policy,
        interval_seconds=120.0,
        restart_seconds=20.0,
    )
    return run_simulation(options).totals


def row(policy: str, ours: Totals, published: Mapping[str, float]) -> str:
    """Return one line of the table."""
    makespan_hours = ours.makespan_s / 3600
    difference = makespan_hours / published["makespan_h"] - 1
    return (
        f"| {policy} | {published['makespan_h']:.2f} | {makespan_hours:.2f} | {difference:+.0%} "
        f"| {published['unfair_pct']:.1f} | {100 * (ours.unfair_share or 0.0):.1f} "
        f"| {published['worst_ftf']:.2f} | {ours.worst_ftf_rho:.2f} "
        f"| {published['avg_jct_h']:.2f} | {ours.avg_jct_s / 3600:.2f} | {ours.restarts} "
        f"| {ours.decision_ms_p50:.0f} |"
    )


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    arguments = parser.parse_args()
    data = data_folder("shockwave and golden")
    text = (data / "golden" / "shockwave-120jobs-32gpus-sim.json").read_text()
    golden = {entry["policy"]: entry for entry in json.loads(text)}
    print(HEADER)
    print("|---" * (HEADER.count("|") - 1) + "|")
    for policy in arguments.policies:
        published = golden[POLICIES[policy]]
        print(row(policy, measure(data, policy), published), flush=True)


if __name__ == "__main__":
    main()
