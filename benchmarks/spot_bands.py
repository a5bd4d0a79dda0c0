"""Coverage of the ranges of finish and spend that are stated at submission.

    CASTOR_DATA=... python benchmarks/spot_bands.py [--jobs 40] [--tuning]

Jobs of one V100 instance on the traces of "Can't Be Late" (Wu et al., NSDI'24), as in
`benchmarks/spot.py`: three applications and lengths, other offsets of each trace, a tight
deadline, a loose one, and none but a value of time. For each job the time and cost are stated as
`castor plan` would at its submission, by the knowledge until then; the first `WARM` jobs of each
run are not counted. The traces of the zones in `TUNING` were used to develop the ranges and are
left out; with --tuning only those are run.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data_folder import data_folder
from spot import WARM, Jobs, read_zones, simulate

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.forecasts.frontier import JobForecast, frontier
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from providers.simulated.capacity import CapacityTrace

TUNING = (("us-east-1a",), ("us-east-2b",), ("us-east-1a", "us-east-2b"))
REPORTED = (("us-east-1c",), ("us-east-1f",), ("us-east-1c", "us-east-1f"))
APPLICATIONS = (("cifar10", 128, 4.0), ("deepspeech2", 20, 2.0), ("bert", 12, 8.0))
OBJECTIVES: Mapping[str, float | None] = {
    "deadline 1.5 x": 1.5,
    "deadline 4 x": 4.0,
    "waiting costs $10/h": None,
}
DAY = 86400.0


class Stating:
    """Policy that also states the prospect of each job at its first plan."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.stated: dict[str, JobForecast | None] = {}

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan, and store the prospects of new jobs."""
        for job in snapshot.jobs:
            if job.id not in self.stated:
                self.stated[job.id] = _statement(job, snapshot)
        return self._policy.plan(snapshot)


def _statement(job: JobSnapshot, snapshot: Snapshot) -> JobForecast | None:
    """Return the stated prospect of a job; None for a job of unknown length or with instances."""
    if job.remaining_examples is None or job.held is not None:
        return None
    job_frontier = frontier(job, snapshot)
    return None if job_frontier is None else job_frontier.chosen


@dataclass(frozen=True)
class Stated:
    """Time and cost of one job, and its stated prospect."""

    seconds: float
    usd: float
    prospect: JobForecast

    @property
    def held(self) -> tuple[bool, bool, bool, bool, bool, bool]:
        """Whether time and cost are below the band, within it, and at most the 90 % value."""
        flags: list[bool] = []
        for value, stated in (
            (self.seconds, self.prospect.seconds),
            (self.usd, self.prospect.usd),
        ):
            flags += [value < stated.low, stated.low <= value <= stated.high]
            flags += [value <= stated.ninety_percent]
        return tuple(flags)  # type: ignore[return-value]


def stated_runs(
    profiles: Mapping[str, Profile], zones: Mapping[str, CapacityTrace], jobs: Jobs
) -> list[Stated]:
    """Return every counted job of a run that has a stated prospect."""
    policy = Stating(create_policy("marginal"))
    results = simulate(profiles, zones, jobs, policy)
    runs = []
    for job in results[WARM:]:
        prospect = policy.stated[job.name]
        if prospect is not None:
            runs.append(Stated(job.completion_seconds, job.cost_usd, prospect))
    return runs


def _print_coverage(name: str, runs: Sequence[Stated]) -> None:
    """Print the coverage of a group of runs."""
    shares = [sum(flags) / len(runs) for flags in zip(*(run.held for run in runs), strict=True)]
    cells = " | ".join(f"{share:.0%}" for share in shares)
    width = sum(run.prospect.seconds.high / run.prospect.seconds.median for run in runs)
    print(f"| {name} | {len(runs)} | {cells} | {width / len(runs):.2f} |", flush=True)


def main() -> None:
    """Print the coverage by group, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--tuning", action="store_true")
    options = parser.parse_args()
    data = data_folder("spot, hetero and pollux")
    traces = read_zones(data)
    profiles = read_profiles(data / "hetero", data / "pollux" / "app-profiles")
    print("| | runs | sooner | in band | 90 % | cheaper | in band | 90 % | high / median |")
    print("|---" * 9 + "|")
    runs_by_group: dict[str, list[Stated]] = defaultdict(list)
    for index, names in enumerate(TUNING if options.tuning else REPORTED):
        for number, (application, batch, hours) in enumerate(APPLICATIONS):
            shift = DAY * (3.1 * number + 1.7 * index)
            zones = {name: traces[name].shifted(shift) for name in names}
            for objective, slack in OBJECTIVES.items():
                jobs = Jobs(slack, options.jobs + WARM, application, batch, hours * 3600.0, 0.02)
                runs = stated_runs(profiles, zones, jobs)
                for key in (objective, " and ".join(names), application, "all"):
                    runs_by_group[key] += runs
    for key, runs in runs_by_group.items():
        _print_coverage(key, runs)


if __name__ == "__main__":
    main()
