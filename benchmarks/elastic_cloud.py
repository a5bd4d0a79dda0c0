"""One job on an elastic cloud against a plan that knows everything: dollars and priced time.

The real controller on a virtual clock, with the policy `marginal`: a job of which nothing is
known, and then another of the same program, with what the first has taught. Step times are
measured with a log standard deviation of 0.03, noise scales with 0.10. The limit is that of
`clairvoyant.py`, on the same cloud. Prints Markdown.

    CASTOR_DATA=... python benchmarks/elastic_cloud.py [--application imagenet] [--seeds 5]
    python benchmarks/elastic_cloud.py --cases FOLDER

A folder of cases has one for each: the sub-folder of an application with its profiles in the
published format, and an `offers.yaml` beside it (docs/simulator.md). `made_up.py` makes one.
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
from autoscaler.simulator.profiles import Profile, read_profiles
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.slowdowns import Slowdown
from autoscaler.simulator.training import TrainingSettings
from autoscaler.simulator.workload import Arrival
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.offers_file import load_offers
from autoscaler.store.memory.store import memory_store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

_STEP_ERROR = 0.03
_NOISE_ERROR = 0.10
# One look at another kind of device lasts this much longer than its boot.
_LOOK_SECONDS = 30.0


@dataclass(frozen=True)
class Subject:
    """An application, and the cloud that it may use."""

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
    """Dollars + value of time x duration of the first run and of the next one."""

    first_usd: float
    again_usd: float


@dataclass(frozen=True)
class Row:
    """All seeds of one subject at one value of time, in shares of the limit's cost."""

    name: str
    cloud: Ground
    value_of_time: float
    least: Limit
    first: Sequence[float]
    again: Sequence[float]

    @property
    def is_long(self) -> bool:
        """Whether the limit's plan takes an hour or more."""
        return self.least.seconds >= 3600.0

    @property
    def first_allowed(self) -> float:
        """What is aimed at: one look at each offer that the limit's plan does not begin with."""
        begins = self.least.plan[0].rsplit(" ", 1)[-1]
        others = [each for each in self.cloud.machines if each.offer.id != begins]
        looks = sum(map(_look_usd, others)) / self.least.cost_usd
        return 1.10 + looks if self.is_long else 1.5

    @property
    def again_allowed(self) -> float:
        """What is aimed at, above five looks at the dearest and below."""
        dearest = max(map(_look_usd, self.cloud.machines))
        return 1.10 if self.least.cost_usd >= 5 * dearest else 1.35


def _look_usd(machine: Machine) -> float:
    return machine.boot_usd + machine.offer.usd_per_second * _LOOK_SECONDS


def run_case(subjects: Mapping[str, Subject], policy: str, case: Case) -> Paid:
    """Two runs of one program, one after the other."""
    subject = subjects[case.subject]
    setup = Setup(subject.cloud, policy, case.value_of_time, 1000 * case.seed)
    first = run_job(subject.profile, setup)
    again = run_job(subject.profile, replace(setup, seed=setup.seed + 500), first.memory)
    return Paid(first.cost_usd(case.value_of_time), again.cost_usd(case.value_of_time))


@dataclass(frozen=True)
class Setup:
    """Cloud, policy, value of time ($/h) and seed of one job.

    `slowdowns` and `noise_factor` are as in `TrainingSettings`.
    """

    cloud: Ground
    policy: str
    value_of_time: float
    seed: int
    slowdowns: tuple[Slowdown, ...] = ()
    noise_factor: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """What a job came to, and what its program has taught."""

    usd: float
    seconds: float
    memory: ProgramMemory | None

    def cost_usd(self, value_of_time: float) -> float:
        """Dollars, and its time at that value ($/h)."""
        return self.usd + value_of_time * self.seconds / 3600.0


def run_job(profile: Profile, setup: Setup, memory: ProgramMemory | None = None) -> Outcome:
    """One job under the real controller, which remembers what `memory` says of its program."""
    clock, store = VirtualClock(), memory_store()
    if memory is not None:
        store.programs.remember(memory)
    machines = setup.cloud.machines
    equipment = {each.offer.id: Equipment(each.offer, each.kind) for each in machines}
    limits = tuple(
        SharedLimit(each.offer.id, LimitUnit.INSTANCES, each.most, frozenset([each.offer.id]))
        for each in machines
    )
    settings = SimulatedSettings(
        offers=tuple(each.offer for each in equipment.values()), limits=limits, seed=setup.seed
    )
    cloud = SimulatedProvider(SimulatedCloud(settings, clock), store.settings.controller_id())
    planner = create_policy(setup.policy)
    scenario = Scenario(
        arrivals=(Arrival("job", 0.0, profile.name, 1, profile.initial_batch),),
        profiles={profile.name: profile},
        equipment=equipment,
        objective=partial(_objective, setup.value_of_time),
        instances=InstanceBounds(maximum=max(each.most for each in machines)),
        training=TrainingSettings(
            pause_seconds=setup.cloud.pause_seconds,
            step_error=_STEP_ERROR,
            noise_error=_NOISE_ERROR,
            seed=setup.seed,
            fills_batch=getattr(planner, "fills_batch", False),
            slowdowns=setup.slowdowns,
            noise_factor=setup.noise_factor,
        ),
        remembers=True,
    )
    run = Simulation(scenario, store, cloud, TimedPolicy(planner, SystemClock()), clock).run()
    (ran,) = run.jobs
    usd = Ledger(store.ledger.entries()).total(run.ended_seconds)
    return Outcome(float(usd), ran.finished_seconds, store.programs.recall(profile.name))


def _objective(value_of_time: float, now_seconds: float) -> Objective:
    text = f"value_of_time={value_of_time:g}" if value_of_time else "cheapest"
    return parse_objective_text(text, now_seconds)


def published_subjects() -> dict[str, Subject]:
    """The applications that were published, on T4 and A100 nodes."""
    data = data_folder("hetero and pollux")
    profiles = read_profiles(data / "hetero", data / "pollux" / "app-profiles")
    return {name: Subject(profiles[name], CLOUD) for name in APPLICATIONS}


def subjects_in(folder: Path) -> dict[str, Subject]:
    """Those of a folder of cases: each its own, with its `offers.yaml` beside its profiles."""
    found = {}
    for place in sorted(folder.iterdir()):
        offers = load_offers(place / "offers.yaml", 0.0)
        for name, profile in read_profiles(place).items():
            found[name] = Subject(profile, ground_of(offers, profile))
    return found


def print_rows(rows: Sequence[Row]) -> None:
    """A line for each, and how many are as near to the limit as they are meant to be."""
    print(
        "| application | $/h | limit, $ | h | first run | worst | allowed | again | worst "
        "| allowed |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    kept: dict[str, list[bool]] = {"first, 1 h or more": [], "first, shorter": [], "again": []}
    for row in rows:
        first, again = fmean(row.first), fmean(row.again)
        length = "first, 1 h or more" if row.is_long else "first, shorter"
        kept[length].append(first <= row.first_allowed)
        kept["again"].append(again <= row.again_allowed)
        print(
            f"| {row.name} | {row.value_of_time:g} | {row.least.cost_usd:.2f} "
            f"| {row.least.seconds / 3600:.2f} | {_mark(first, row.first_allowed)} "
            f"| {max(row.first):.2f} | {row.first_allowed:.2f} "
            f"| {_mark(again, row.again_allowed)} "
            f"| {max(row.again):.2f} | {row.again_allowed:.2f} |"
        )
    print()
    for name, each in kept.items():
        print(f"- {name}: {sum(each)} of {len(each)} within what is allowed")
    means = fmean(fmean(row.first) for row in rows), fmean(fmean(row.again) for row in rows)
    print(f"- mean {means[0]:.3f} x the limit at first, {means[1]:.3f} x again")


def _mark(value: float, allowed: float) -> str:
    return f"{value:.2f}" if value <= allowed else f"**{value:.2f}**"


def main() -> int:
    """Run all cases, in as many processes as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, help="in place of what was published")
    parser.add_argument("--application", action="append")
    parser.add_argument("--value-of-time", type=float, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--policy", default="marginal")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    subjects = published_subjects() if asked.cases is None else subjects_in(asked.cases)
    wanted = asked.application or list(subjects)
    values = asked.value_of_time or VALUES_OF_TIME
    cases = [Case(a, v, seed) for a in wanted for v in values for seed in range(asked.seeds)]
    with ProcessPoolExecutor(asked.workers) as workers:
        run = partial(run_case, subjects, asked.policy)
        paid = dict(zip(cases, workers.map(run, cases), strict=True))
    rows = []
    for name in wanted:
        for value in values:
            subject = subjects[name]
            least = limit(subject.profile, subject.cloud, value)
            own = [paid[Case(name, value, seed)] for seed in range(asked.seeds)]
            first = [each.first_usd / least.cost_usd for each in own]
            again = [each.again_usd / least.cost_usd for each in own]
            rows.append(Row(name, subject.cloud, value, least, first, again))
    print_rows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
