"""One job on an elastic cloud against a plan with full knowledge: dollars and priced time.

The real controller on a virtual clock, with the policy `marginal`, runs a job without history, and
then another of the same program, with what the first has taught. Step times are measured with a
log standard deviation of 0.03, noise scales with 0.10. The limit is that of `clairvoyant.py` on
the same cloud. Prints Markdown.

    CASTOR_DATA=... python benchmarks/elastic_cloud.py [--application imagenet] [--seeds 5]
    python benchmarks/elastic_cloud.py --cases FOLDER

A folder of cases has one sub-folder for each application, with its profiles in the published
format, and an `offers.yaml` beside it (docs/simulator.md). `made_up.py` creates such a folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from clairvoyant import (
    APPLICATIONS,
    CLOUD,
    VALUES_OF_TIME,
    Ground,
    Limit,
    Machine,
    ground_of,
    limit,
)
from data_folder import data_folder

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Limit as SharedLimit
from autoscaler.domain.offer import LimitUnit
from autoscaler.domain.program import ProgramMemory
from autoscaler.ledger.ledger import Ledger
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.profiles.slowdowns import Slowdown
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.offers_file import load_offers
from autoscaler.store.memory.store import memory_store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

_STEP_ERROR = 0.03
_NOISE_ERROR = 0.10
# Seconds that a trial of another kind of device lasts beyond its boot.
_PROBE_SECONDS = 30.0


@dataclass(frozen=True)
class Subject:
    """Application, and the cloud that it may use."""

    profile: Profile
    cloud: Ground


@dataclass(frozen=True)
class Case:
    """One subject at one value of time ($/h), with one seed."""

    subject: str
    value_of_time: float
    seed: int


@dataclass(frozen=True)
class Paid:
    """Dollars + value of time x duration of the first run and of the next run."""

    first_usd: float
    again_usd: float


@dataclass(frozen=True)
class Row:
    """All seeds of one subject at one value of time, as fractions of the least cost."""

    name: str
    cloud: Ground
    value_of_time: float
    least: Limit
    first: Sequence[float]
    again: Sequence[float]

    @property
    def is_long(self) -> bool:
        """Whether the least-cost plan takes an hour or more."""
        return self.least.seconds >= 3600.0

    @property
    def first_allowed(self) -> float:
        """Target of first runs: one trial of each offer but the first of the least-cost plan."""
        first_offer = self.least.plan[0].rsplit(" ", 1)[-1]
        others = [machine for machine in self.cloud.machines if machine.offer.id != first_offer]
        probes = sum(map(_probe_usd, others)) / self.least.cost_usd
        return 1.10 + probes if self.is_long else 1.5

    @property
    def again_allowed(self) -> float:
        """Target of later runs; lower if the least cost is at least five of the dearest trials."""
        dearest_probe = max(map(_probe_usd, self.cloud.machines))
        return 1.10 if self.least.cost_usd >= 5 * dearest_probe else 1.35


def _probe_usd(machine: Machine) -> float:
    """Return the cost of a trial of one instance."""
    return machine.boot_usd + machine.offer.usd_per_second * _PROBE_SECONDS


def run_case(subjects: Mapping[str, Subject], policy: str, case: Case) -> Paid:
    """Return the costs of two consecutive runs of one program."""
    subject = subjects[case.subject]
    setup = Setup(subject.cloud, policy, case.value_of_time, 1000 * case.seed)
    first = run_job(subject.profile, setup)
    again = run_job(subject.profile, replace(setup, seed=setup.seed + 500), first.memory)
    return Paid(first.cost_usd(case.value_of_time), again.cost_usd(case.value_of_time))


@dataclass(frozen=True)
class Setup:
    """Cloud, policy, value of time ($/h) and seed of one job.

    `slowdowns`, `noise_factor` and `parameter_bytes` are as in `TrainingSettings`. `instances` are
    the job's bounds; None for any number of the cloud.
    """

    cloud: Ground
    policy: str
    value_of_time: float
    seed: int
    slowdowns: tuple[Slowdown, ...] = ()
    noise_factor: float = 1.0
    parameter_bytes: int = 100_000_000
    instances: InstanceBounds | None = None


@dataclass(frozen=True)
class Outcome:
    """Dollars and seconds of a job, and what its program has taught."""

    usd: float
    seconds: float
    memory: ProgramMemory | None

    def cost_usd(self, value_of_time: float) -> float:
        """Return the dollars plus the time at that value ($/h)."""
        return self.usd + value_of_time * self.seconds / 3600.0


def run_job(profile: Profile, setup: Setup, memory: ProgramMemory | None = None) -> Outcome:
    """Run one job under the real controller, which knows the `memory` of its program."""
    clock, store = VirtualClock(), memory_store()
    if memory is not None:
        store.programs.remember(memory)
    machines = setup.cloud.machines
    equipment = {machine.offer.id: Equipment(machine.offer, machine.kind) for machine in machines}
    limits = tuple(
        SharedLimit(
            machine.offer.id, LimitUnit.INSTANCES, machine.most, frozenset([machine.offer.id])
        )
        for machine in machines
    )
    settings = SimulatedSettings(
        offers=tuple(item.offer for item in equipment.values()), limits=limits, seed=setup.seed
    )
    cloud = SimulatedProvider(SimulatedCloud(settings, clock), store.settings.controller_id())
    planner = create_policy(setup.policy)
    scenario = Scenario(
        arrivals=(Arrival("job", 0.0, profile.name, 1, profile.initial_batch),),
        profiles={profile.name: profile},
        equipment=equipment,
        objective=partial(_objective, setup.value_of_time),
        instances=setup.instances
        or InstanceBounds(maximum=max(machine.most for machine in machines)),
        training=TrainingSettings(
            pause_seconds=setup.cloud.pause_seconds,
            step_error=_STEP_ERROR,
            noise_error=_NOISE_ERROR,
            seed=setup.seed,
            fills_batch=getattr(planner, "fills_batch", False),
            slowdowns=setup.slowdowns,
            noise_factor=setup.noise_factor,
            parameter_bytes=setup.parameter_bytes,
        ),
        remembers=True,
    )
    run = Simulation(scenario, store, cloud, TimedPolicy(planner, SystemClock()), clock).run()
    (finished_job,) = run.jobs
    usd = Ledger(store.ledger.entries()).total(run.ended_seconds)
    return Outcome(float(usd), finished_job.finished_seconds, store.programs.recall(profile.name))


def _objective(value_of_time: float, now_seconds: float) -> Objective:
    text = f"value_of_time={value_of_time:g}" if value_of_time else "cheapest"
    return parse_objective_text(text, now_seconds)


def published_subjects() -> dict[str, Subject]:
    """Return the published applications, on T4 and A100 nodes."""
    data = data_folder("hetero and pollux")
    profiles = read_profiles(data / "hetero", data / "pollux" / "app-profiles")
    return {name: Subject(profiles[name], CLOUD) for name in APPLICATIONS}


def subjects_in(folder: Path) -> dict[str, Subject]:
    """Return the subjects of a folder of cases, each with its own cloud."""
    subjects = {}
    for case_folder in sorted(folder.iterdir()):
        offers = load_offers(case_folder / "offers.yaml", 0.0)
        for name, profile in read_profiles(case_folder).items():
            subjects[name] = Subject(profile, ground_of(offers, profile))
    return subjects


def print_rows(rows: Sequence[Row]) -> None:
    """Print a line for each row, and how many rows are within their targets."""
    print(
        "| application | $/h | limit, $ | h | first run | worst | allowed | again | worst "
        "| allowed |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    is_within_by_group: dict[str, list[bool]] = {
        "first, 1 h or more": [],
        "first, shorter": [],
        "again": [],
    }
    for row in rows:
        first, again = fmean(row.first), fmean(row.again)
        length = "first, 1 h or more" if row.is_long else "first, shorter"
        is_within_by_group[length].append(first <= row.first_allowed)
        is_within_by_group["again"].append(again <= row.again_allowed)
        print(
            f"| {row.name} | {row.value_of_time:g} | {row.least.cost_usd:.2f} "
            f"| {row.least.seconds / 3600:.2f} | {_marked(first, row.first_allowed)} "
            f"| {max(row.first):.2f} | {row.first_allowed:.2f} "
            f"| {_marked(again, row.again_allowed)} "
            f"| {max(row.again):.2f} | {row.again_allowed:.2f} |"
        )
    print()
    for name, is_within in is_within_by_group.items():
        print(f"- {name}: {sum(is_within)} of {len(is_within)} within what is allowed")
    means = fmean(fmean(row.first) for row in rows), fmean(fmean(row.again) for row in rows)
    print(f"- mean {means[0]:.3f} x the limit at first, {means[1]:.3f} x again")


def _marked(value: float, allowed: float) -> str:
    """Return the value as text, bold if it exceeds what is allowed."""
    return f"{value:.2f}" if value <= allowed else f"**{value:.2f}**"


def main() -> int:
    """Run all cases in parallel processes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases", type=Path, help="folder of cases, in place of the published ones"
    )
    parser.add_argument("--application", action="append")
    parser.add_argument("--value-of-time", type=float, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--policy", default="marginal")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    subjects = published_subjects() if arguments.cases is None else subjects_in(arguments.cases)
    applications = arguments.application or list(subjects)
    values = arguments.value_of_time or VALUES_OF_TIME
    cases = [
        Case(application, value, seed)
        for application in applications
        for value in values
        for seed in range(arguments.seeds)
    ]
    with ProcessPoolExecutor(arguments.workers) as workers:
        run = partial(run_case, subjects, arguments.policy)
        paid = dict(zip(cases, workers.map(run, cases), strict=True))
    rows = []
    for name in applications:
        for value in values:
            subject = subjects[name]
            least = limit(subject.profile, subject.cloud, value)
            costs = [paid[Case(name, value, seed)] for seed in range(arguments.seeds)]
            first = [cost.first_usd / least.cost_usd for cost in costs]
            again = [cost.again_usd / least.cost_usd for cost in costs]
            rows.append(Row(name, subject.cloud, value, least, first, again))
    print_rows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
