"""A month of jobs that want more than their budgets: slowed by a shadow price, or stopped.

The real controller on a virtual clock runs the jobs of three people in two teams, whose demand
exceeds the budgets of a team, a person and the fleet. `steered` slows all jobs of a budget by
one weight; `stop at limit` runs each job at its own best size until its budget is used up, and
pauses it for the rest of the month. Prints Markdown.

    python benchmarks/budgets.py [--seeds 2] [--interval 900]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.access import Owner
from autoscaler.domain.budget import Budget, BudgetScope, ScopeKind, month_of
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.ledger.bill import Bill
from autoscaler.ledger.ledger import Ledger
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.simulation import Simulation, TimedPolicy
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.workload import Arrival
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.provider import SimulatedProvider
from providers.simulated.settings import SimulatedSettings

APPLICATION, SHORT = "made-up", "short"
ZONE = "Europe/Berlin"
DAY_SECONDS, SECONDS_PER_HOUR = 86400.0, 3600.0
OWNERS = {
    "parser": Owner("ada", "nlp"),
    "tagger": Owner("ada", "nlp"),
    "speech": Owner("bob", "nlp"),
    "depth": Owner("eve", "vision"),
    "pose": Owner("eve", "vision"),
}
NLP = BudgetScope(ScopeKind.TEAM, "nlp")
EVE = BudgetScope(ScopeKind.PERSON, "eve")
FLEET = BudgetScope(ScopeKind.FLEET)
_DEVICE_BATCHES = (8, 32, 128)
_MOST_INSTANCES = 8
_EPOCHS, _EPOCH_STEPS = 5, 200_000_000
_SHORT_EPOCH_STEPS = 120_000


@dataclass(frozen=True)
class Month:
    """Case to simulate.

    Attributes:
        budgets: shared budgets.
        begin_seconds: start of the jobs, from which `days` are simulated.
        days: length of the simulation.
        interval_seconds: longest time between plans.
        seed: of prices, step times and reclaims.
        reclaims_per_hour: hazard of the spot instances; 0: on-demand instances only.
        value_of_time: of each job, $/h.
        gap_seconds: time between two submissions.
        deadline_hours: deadlines of jobs by name, in hours from the start.
        short: names of jobs that end within hours; the others never end.
        after_deadline: what jobs do whose deadline can't be kept.
    """

    budgets: tuple[Budget, ...]
    begin_seconds: float
    days: float
    interval_seconds: float = 900.0
    seed: int = 1
    reclaims_per_hour: float = 0.0
    value_of_time: float = 12.0
    gap_seconds: float = 3600.0
    deadline_hours: Mapping[str, float] = field(default_factory=dict)
    short: frozenset[str] = frozenset()
    after_deadline: AfterDeadline = AfterDeadline.BALANCED

    def submitted_seconds(self, name: str) -> float:
        """Return the time of a job's submission."""
        return self.begin_seconds + list(OWNERS).index(name) * self.gap_seconds

    def objectives(self) -> Mapping[float, Objective]:
        """Return the objective of each job by the time of its submission."""
        deadlines = {
            name: self.begin_seconds + hours * SECONDS_PER_HOUR
            for name, hours in self.deadline_hours.items()
        }
        return {
            self.submitted_seconds(name): Objective(
                Preference.VALUE_OF_TIME,
                self.value_of_time,
                deadlines.get(name),
                after_deadline=self.after_deadline,
            )
            for name in OWNERS
        }


@dataclass(frozen=True)
class Outcome:
    """Result of a month.

    Attributes:
        usd: cost of each budget's jobs in its month, at the end of the simulation.
        highest_usd: highest share of its limit that each budget reached in any of its months.
        examples: useful examples of each job.
        training_seconds: time in which each job had instances that train.
        ended_seconds: end of each job that has finished.
    """

    usd: Mapping[BudgetScope, Decimal]
    highest_share: Mapping[BudgetScope, Decimal]
    examples: Mapping[str, float]
    training_seconds: Mapping[str, float]
    ended_seconds: Mapping[str, float]


class StopsAtLimit:
    """Policy without steering: it does not see the budgets before they are used up."""

    plans_studies = True
    weighs_boots = True

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the plan that ignores budgets; the controller stops jobs at the limit."""
        return self._policy.plan(replace(snapshot, budgets=()))


def run_month(month: Month, profiles: Mapping[str, Profile], is_steered: bool) -> Outcome:
    """Simulate a month."""
    store: Store = memory_store()
    clock = VirtualClock(month.begin_seconds)
    offers = tuple(_offers(month.reclaims_per_hour))
    cloud = SimulatedProvider(
        SimulatedCloud(SimulatedSettings(offers=offers, seed=month.seed), clock),
        store.settings.controller_id(),
    )
    policy: Policy = create_policy("marginal")
    scenario = Scenario(
        arrivals=tuple(
            Arrival(
                name,
                month.submitted_seconds(name),
                SHORT if name in month.short else APPLICATION,
                1,
                32,
            )
            for name in OWNERS
        ),
        profiles=profiles,
        equipment={offer.id: Equipment(offer, offer.device_kind) for offer in offers},
        objective=month.objectives().__getitem__,
        instances=InstanceBounds(maximum=_MOST_INSTANCES),
        training=TrainingSettings(pause_seconds=2.0, step_error=0.03, seed=month.seed),
        interval_seconds=month.interval_seconds,
        owners=OWNERS,
        budgets=month.budgets,
        ends_seconds=month.begin_seconds + month.days * DAY_SECONDS,
    )
    timed = TimedPolicy(policy if is_steered else StopsAtLimit(policy), SystemClock())
    Simulation(scenario, store, cloud, timed, clock).run()
    return _outcome(month, store, clock.now())


def _outcome(month: Month, store: Store, now_seconds: float) -> Outcome:
    bills = Ledger(store.ledger.entries()).bills
    usd, highest = {}, {}
    for budget in month.budgets:
        limit = budget.month_usd
        if limit is None:
            continue
        period = budget.month(month.begin_seconds)
        spent = []
        while period.start_seconds < now_seconds:
            ends = min(period.end_seconds, now_seconds)
            spent.append(_spent(bills, budget.scope, store, (period.start_seconds, ends)))
            period = budget.month(period.end_seconds)
        usd[budget.scope], highest[budget.scope] = spent[0], max(spent) / limit
    jobs = store.jobs.all()
    return Outcome(
        usd=usd,
        highest_share=highest,
        examples={
            job.spec.name: 0.0 if job.report is None else job.report.progress_examples
            for job in jobs
        },
        training_seconds={
            job.spec.name: _training_seconds(store, job.id, now_seconds) for job in jobs
        },
        ended_seconds={
            job.spec.name: job.ended_seconds
            for job in jobs
            if job.phase is JobPhase.FINISHED and job.ended_seconds is not None
        },
    )


def _spent(
    bills: Sequence[Bill], scope: BudgetScope, store: Store, span: tuple[float, float]
) -> Decimal:
    """Return the cost of a scope's jobs within a span of time, from the whole ledger."""
    owners = {job.id: job.spec.owner for job in store.jobs.all()}
    since, until = span
    return sum(
        (
            usd
            for bill in bills
            for start, sign in ((since, 1), (until, -1))
            for job, part in bill.usd_by_job(start, 1e12 if start > until else until).items()
            for usd in (sign * part,)
            if scope.covers(owners[job], None)
        ),
        Decimal(0),
    )


def _training_seconds(store: Store, job: str, now_seconds: float) -> float:
    """Return the seconds in which a job had at least one instance."""
    spans = sorted(
        (
            held.training_seconds,
            min(held.draining_seconds or held.ended_seconds or np.inf, now_seconds),
        )
        for held in store.instances.of_job(job, include_ended=True)
        if held.training_seconds is not None
    )
    return float(sum(_merged(spans)))


def _merged(spans: Iterable[tuple[float, float]]) -> Iterable[float]:
    until = -np.inf
    for start, end in spans:
        if end > until:
            yield end - max(start, until)
            until = end


def write_profiles(directory: Path) -> dict[str, Profile]:
    """Write and read the profiles of the applications that the jobs train."""
    for application, epoch_steps in ((APPLICATION, _EPOCH_STEPS), (SHORT, _SHORT_EPOCH_STEPS)):
        folder = directory / application
        folder.mkdir(parents=True)
        _write(folder / "placements-t4.csv", _placements())
        for batch in (32, 512):
            _write(folder / f"validation-{batch}.csv", _training(epoch_steps))
    return read_profiles(directory)


def _placements() -> Iterable[str]:
    yield "placement,local_bsz,step_time,sync_time"
    for instances in range(1, _MOST_INSTANCES + 1):
        sync = 0.08 * (1 - 1 / instances) + 0.015 * (instances - 1) + 1e-4
        for batch in _DEVICE_BATCHES:
            yield f"{'1' * instances},{batch},{0.01 + 0.004 * batch + sync},{sync}"


def _training(epoch_steps: int) -> Iterable[str]:
    yield "progress,iteration,metric,grad_sqr,grad_var"
    for epoch in range(1, _EPOCHS + 1):
        done = epoch * epoch_steps
        yield f"{done},{done},0.5,1.0,{64.0 + 16.0 * epoch}"


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def _offers(reclaims_per_hour: float) -> Iterable[Offer]:
    spot = reclaims_per_hour > 0
    yield Offer(
        id="t4-spot" if spot else "t4",
        provider="simulated",
        instance_type="g4dn.xlarge",
        zone="here",
        purchase=Purchase.SPOT if spot else Purchase.ON_DEMAND,
        devices=1,
        device_kind="t4",
        usd_per_hour=Decimal("0.526"),
        boot_seconds=180.0,
        network_bytes_per_second=1e9,
        reclaims_per_hour=reclaims_per_hour,
        minimum_billed_seconds=60,
    )


def november() -> float:
    """Return the start of November 2026 in the budgets' zone."""
    return month_of(datetime(2026, 11, 15, tzinfo=UTC).timestamp(), ZONE).start_seconds


def table(rows: Sequence[tuple[str, Month, Outcome]]) -> str:
    """Return the outcomes as a table in Markdown."""
    lines = [
        "| seed | way | used of each budget | highest share | examples (millions) "
        "| least of a job | jobs at work |",
        "|---|---|---|---|---|---|---|",
    ]
    for way, month, outcome in rows:
        used = ", ".join(
            f"{scope} {usd / limit:.1%}"
            for scope, usd in outcome.usd.items()
            for limit in (next(b.month_usd for b in month.budgets if b.scope == scope),)
            if limit is not None
        )
        millions = [examples / 1e6 for examples in outcome.examples.values()]
        seconds = month.days * DAY_SECONDS
        at_work = np.mean([value / seconds for value in outcome.training_seconds.values()])
        lines.append(
            f"| {month.seed} | {way} | {used} | {max(outcome.highest_share.values()):.2%} "
            f"| {sum(millions):.0f} | {min(millions):.0f} | {at_work:.0%} of the month |"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulate the months of all seeds both ways, and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--interval", type=float, default=900.0, help="seconds between plans")
    parser.add_argument("--reclaims-per-hour", type=float, default=0.0)
    arguments = parser.parse_args()
    budgets = (
        Budget(NLP, Decimal(2000), zone=ZONE),
        Budget(EVE, Decimal(1200), zone=ZONE),
        Budget(FLEET, Decimal(3000), zone=ZONE),
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        profiles = write_profiles(Path(folder))
        for seed in range(1, arguments.seeds + 1):
            month = Month(
                budgets,
                november(),
                days=30.0,
                interval_seconds=arguments.interval,
                seed=seed,
                reclaims_per_hour=arguments.reclaims_per_hour,
            )
            for way in ("steered", "stop at limit"):
                rows.append((way, month, run_month(month, profiles, way == "steered")))
    print(table(rows))


if __name__ == "__main__":
    main()
