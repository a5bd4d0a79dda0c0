"""Costs of published policies on an elastic cloud: `throughput` and `pollux` beside `marginal`.

One job of imagenet on three clouds: T4 nodes and A100 nodes, and either alone. `throughput` (Or et
al., MLSys'20) scales out while throughput per dollar holds. `pollux` (OSDI'21) sizes its cluster
by a band of utility. `marginal` runs at several values of time; each baseline is compared with the
cheapest of these runs that finishes no later. Jobs have no history. Prints Markdown.

    CASTOR_DATA=... python benchmarks/cloud_baselines.py [--application imagenet]
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean

from clairvoyant import APPLICATIONS, CLOUD, Ground
from data_folder import data_folder
from elastic_cloud import Outcome, Setup, run_job

from autoscaler.simulator.profiles.profiles import read_profiles

_CLOUDS = {
    "both": CLOUD,
    "T4": Ground(CLOUD.machines[:1]),
    "A100": Ground(CLOUD.machines[1:]),
}
_VALUES_OF_TIME = (0.0, 3.0, 10.0, 20.0, 30.0, 60.0, 100.0, 200.0, 400.0)
_BASELINES = ("throughput", "pollux")


def run_mean(data: Path, application: str, seeds: int, setup: Setup) -> Outcome:
    """Return mean dollars and seconds of one setup over its seeds."""
    folders = (data / "hetero", data / "pollux" / "app-profiles")
    profile = read_profiles(*folders)[application]
    outcomes = [
        run_job(profile, Setup(setup.cloud, setup.policy, setup.value_of_time, 1000 * seed))
        for seed in range(seeds)
    ]
    usd, seconds = (
        (outcome.usd for outcome in outcomes),
        (outcome.seconds for outcome in outcomes),
    )
    return Outcome(fmean(usd), fmean(seconds), None)


def main() -> int:
    """Run all setups and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--application", choices=APPLICATIONS, default="imagenet")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    data = data_folder("hetero and pollux")
    marginal = [("marginal", value) for value in _VALUES_OF_TIME]
    policies = [*((name, 0.0) for name in _BASELINES), *marginal]
    setups = {
        (cloud, name, value): Setup(ground, name, value, 0)
        for cloud, ground in _CLOUDS.items()
        for name, value in policies
    }
    run = partial(run_mean, data, arguments.application, arguments.seeds)
    with ProcessPoolExecutor(arguments.workers) as workers:
        outcomes = dict(zip(setups, workers.map(run, setups.values()), strict=True))
    print("| cloud | policy | h | $ | marginal no later, $ | h | |\n|---|---|---|---|---|---|---|")
    for cloud in _CLOUDS:
        marginal_outcomes = [outcomes[cloud, name, value] for name, value in marginal]
        for name in _BASELINES:
            baseline = outcomes[cloud, name, 0.0]
            in_time = [
                outcome for outcome in marginal_outcomes if outcome.seconds <= baseline.seconds
            ]
            row = f"| {cloud} | {name} | {baseline.seconds / 3600:.2f} | {baseline.usd:.0f} "
            if in_time:
                best = min(in_time, key=lambda outcome: outcome.usd)
                row += f"| {best.usd:.0f} | {best.seconds / 3600:.2f} "
                print(f"{row}| {best.usd / baseline.usd - 1:+.0%} |")
            else:
                fastest = min(marginal_outcomes, key=lambda outcome: outcome.seconds)
                print(f"{row}| none | {fastest.seconds / 3600:.2f} at best | |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
