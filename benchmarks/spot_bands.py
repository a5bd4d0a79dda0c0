"""Whether the band of finish and spend that is stated at submit holds as many runs as it says.

    CASTOR_DATA=... python benchmarks/spot_bands.py [--jobs 40] [--tuning]

Jobs of one V100 instance on the traces of "Can't Be Late" (Wu et al., NSDI'24), as in
`benchmarks/spot.py`: of three applications and lengths, from other moments of each trace, with a
deadline, with much time to it, and with none but a value of time. Each states what it will take
and cost as `castor plan` would at its submission, by what was learnt until then; the first `WARM`
jobs of each run are not counted. The traces of the zones in `TUNING` were used in making the bands
and are left out; with --tuning only those are run.
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
from autoscaler.economics.frontier import Prospect, frontier
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.profiles import Profile, read_profiles
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
    """The policy, and what was stated of each job when it was first planned for."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.stated: dict[str, Prospect | None] = {}

    def plan(self, snapshot: Snapshot) -> Plan:
        """As the policy does."""
        for job in snapshot.jobs:
            if job.id not in self.stated:
                self.stated[job.id] = _statement(job, snapshot)
        return self._policy.plan(snapshot)


def _statement(job: JobSnapshot, snapshot: Snapshot) -> Prospect | None:
    if job.remaining_examples is None or job.held is not None:
        return None
    found = frontier(job, snapshot)
    return None if found is None else found.chosen


@dataclass(frozen=True)
class Stated:
    """What one job took and cost, and what was stated of it."""

    seconds: float
    usd: float
    prospect: Prospect

    @property
    def held(self) -> tuple[bool, bool, bool, bool, bool, bool]:
        """Below the band, within, not above 90 %; of time and of money."""
        found: list[bool] = []
        for value, told in ((self.seconds, self.prospect.seconds), (self.usd, self.prospect.usd)):
            found += [value < told.low, told.low <= value <= told.high]
            found += [value <= told.ninety_percent]
        return tuple(found)  # type: ignore[return-value]


def stated_runs(
    profiles: Mapping[str, Profile], zones: Mapping[str, CapacityTrace], jobs: Jobs
) -> list[Stated]:
    """Every counted job of a run."""
    policy = Stating(create_policy("marginal"))
    results = simulate(profiles, zones, jobs, policy)
    found = []
    for job in results[WARM:]:
        prospect = policy.stated[job.name]
        if prospect is not None:
            found.append(Stated(job.completion_seconds, job.cost_usd, prospect))
    return found


def _print(name: str, found: Sequence[Stated]) -> None:
    shares = [sum(flags) / len(found) for flags in zip(*(one.held for one in found), strict=True)]
    cells = " | ".join(f"{share:.0%}" for share in shares)
    width = sum(one.prospect.seconds.high / one.prospect.seconds.median for one in found)
    print(f"| {name} | {len(found)} | {cells} | {width / len(found):.2f} |", flush=True)


def main() -> None:
    """Print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--tuning", action="store_true")
    options = parser.parse_args()
    data = data_folder("spot, hetero and pollux")
    traces = read_zones(data)
    profiles = read_profiles(data / "hetero", data / "pollux" / "app-profiles")
    print("| | runs | sooner | in band | 90 % | cheaper | in band | 90 % | high / median |")
    print("|---" * 9 + "|")
    by: dict[str, list[Stated]] = defaultdict(list)
    for place, names in enumerate(TUNING if options.tuning else REPORTED):
        for number, (application, batch, hours) in enumerate(APPLICATIONS):
            shift = DAY * (3.1 * number + 1.7 * place)
            zones = {name: traces[name].shifted(shift) for name in names}
            for objective, slack in OBJECTIVES.items():
                jobs = Jobs(slack, options.jobs + WARM, application, batch, hours * 3600.0, 0.02)
                found = stated_runs(profiles, zones, jobs)
                for key in (objective, " and ".join(names), application, "all"):
                    by[key] += found
    for key, found in by.items():
        _print(key, found)


if __name__ == "__main__":
    main()
