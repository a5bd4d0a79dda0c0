"""Invariants of shared budgets, price ceilings and deadlines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from autoscaler.domain.budget import Budget, BudgetScope
from autoscaler.domain.errors import CastorError
from autoscaler.domain.instance import Desired, HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.objective import AfterDeadline
from tests.dst.cloud import Machine

if TYPE_CHECKING:
    from tests.dst.world import World

LEAVE_SECONDS: Final = 240
"""Time from the decision to the end of what is held: a drain, calls, and the least bill."""
_LATE_SECONDS: Final = 300
_CENT: Final = Decimal("0.01")


def in_flight_usd(
    held: Iterable[HeldInstance], machines: Iterable[Machine], spent_usd: Decimal
) -> Decimal:
    """Return the spending until all that is held or ordered now has left."""
    billed = {m.instance: m.usd_per_hour for m in machines if m.is_billed}
    ordered = {
        instance.id: instance.costing_usd_per_hour or Decimal(1)
        for instance in held
        if instance.cloud_id is None
    }
    rate = sum({**ordered, **billed}.values(), Decimal(0))
    return spent_usd + rate * LEAVE_SECONDS / 3600


class LimitInvariants:
    """Checks of limits that jobs share, and of the prices and deadlines of each job."""

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        self._world = world
        self._break = report
        self._overspending: dict[BudgetScope, Decimal] = {}
        self._late_seconds: defaultdict[str, int] = defaultdict(int)

    def on_create(self, machine: Machine) -> None:
        """Check that a machine costs no more than its job accepts for each instance."""
        if self._world.truth.price_changes:
            return
        try:
            bounds = self._world.store.jobs.get(machine.job).spec.instances
        except CastorError:
            return
        ceiling = bounds.max_instance_usd_per_hour
        if ceiling is not None and machine.usd_per_hour > ceiling:
            text = f"{machine.instance} for ${machine.usd_per_hour}/h of at most ${ceiling}/h"
            self._break("no price ceiling is passed", text)

    def check(
        self,
        held: Mapping[str, HeldInstance],
        jobs: Mapping[str, JobRecord],
        seconds: int,
        is_healthy: bool,
        slack_usd: Mapping[str, Decimal],
    ) -> None:
        """Check all limits after a step; `slack_usd` is what outages may cost, by job."""
        for budget in self._world.store.budgets.all():
            self._check_budget(budget, held, jobs, slack_usd)
        self._check_ceilings(held, jobs)
        self._check_deadlines(jobs, seconds, is_healthy)

    def _check_budget(
        self,
        budget: Budget,
        held: Mapping[str, HeldInstance],
        jobs: Mapping[str, JobRecord],
        slack_usd: Mapping[str, Decimal],
    ) -> None:
        """Check that the jobs of a scope spend no more than was in flight at the limit."""
        scope = budget.scope
        covered = {name for name, job in jobs.items() if _covers(scope, job)}
        slack = sum((slack_usd.get(name, Decimal(0)) for name in covered), Decimal(0))
        machines = [m for m in self._world.truth.machines.values() if m.job in covered]
        limits = [usd for usd in (budget.month_usd, budget.total_usd) if usd is not None]
        spent_usd = sum(
            (m.billed_usd(self._world.scheduler.now_seconds) for m in machines), Decimal(0)
        )
        if not limits or spent_usd <= min(limits):
            self._overspending.pop(scope, None)
            return
        if scope not in self._overspending:
            mine = [instance for instance in held.values() if instance.job in covered]
            self._overspending[scope] = in_flight_usd(mine, machines, spent_usd)
        most_usd = max(self._overspending[scope], min(limits)) + slack
        if spent_usd > most_usd + _CENT:
            text = f"{scope}: ${spent_usd:.4f} of ${min(limits)}, ${most_usd:.4f} with what leaves"
            self._break("no shared budget is passed", text)

    def _check_ceilings(
        self, held: Mapping[str, HeldInstance], jobs: Mapping[str, JobRecord]
    ) -> None:
        """Check that the instances of one offer cost a job no more than it accepts together."""
        if self._world.truth.price_changes:
            return
        sums: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
        for machine in self._world.truth.billed():
            instance = held.get(machine.instance)
            if instance is not None and instance.desired is Desired.PRESENT:
                sums[machine.job, machine.offer] += machine.usd_per_hour
        for (name, offer), usd in sums.items():
            ceiling = jobs[name].spec.instances.max_usd_per_hour if name in jobs else None
            if ceiling is not None and usd > ceiling:
                text = f"{name} holds {offer} for ${usd}/h of at most ${ceiling}/h"
                self._break("no price ceiling is passed", text)

    def _check_deadlines(
        self, jobs: Mapping[str, JobRecord], seconds: int, is_healthy: bool
    ) -> None:
        """Check that jobs which stop at their deadline do so; only one policy knows deadlines."""
        if self._world.scenario.policy != "marginal":
            return
        now_seconds = self._world.clock.now()
        for name, job in jobs.items():
            objective = job.spec.objective
            is_late = (
                not job.phase.is_final
                and objective.after_deadline is AfterDeadline.STOP
                and objective.deadline_seconds is not None
                and objective.deadline_seconds < now_seconds
            )
            if not is_late:
                self._late_seconds[name] = 0
            elif is_healthy:
                self._late_seconds[name] += seconds
            if self._late_seconds[name] > _LATE_SECONDS:
                self._break("a job ends at its deadline", f"{name} is {job.phase}")


def _covers(scope: BudgetScope, job: JobRecord) -> bool:
    """Return whether a job counts in a budget, by the words of the documents."""
    match scope.kind.value:
        case "person":
            return (job.spec.person or "owner") == scope.name
        case "team":
            return job.spec.team == scope.name
        case "study":
            return job.spec.study == scope.name
        case _:
            return True
