"""Limits that people set: shared budgets, and the bounds and objectives of jobs."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import AfterDeadline, Objective
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.budget_messages import BudgetRequest
from autoscaler.wire.messages import Change
from tests.dst.network import TOKEN
from tests.dst.scenario import BudgetPlan, JobPlan

if TYPE_CHECKING:
    from tests.dst.world import World

_MEMBER: Final = "ada"
_TEAM: Final = "nlp"


def bounds_of(plan: JobPlan) -> InstanceBounds:
    """Return the bounds of a job."""
    return InstanceBounds(
        plan.minimum,
        plan.maximum,
        spot=plan.spot,
        max_usd_per_hour=_decimal(plan.max_usd_per_hour),
        max_instance_usd_per_hour=_decimal(plan.max_instance_usd_per_hour),
    )


def objective_of(plan: JobPlan, now_seconds: float) -> Objective:
    """Return the objective of a job that is submitted now."""
    seconds = plan.deadline_seconds
    return Objective(
        budget_usd=_decimal(plan.budget_usd),
        deadline_seconds=None if seconds is None else now_seconds + seconds,
        after_deadline=AfterDeadline.STOP if plan.stops_late else AfterDeadline.BALANCED,
    )


class Limits:
    """Budgets that an admin sets before the first job, and lifts at the end with all ceilings."""

    def __init__(self, world: World, budgets: tuple[BudgetPlan, ...]) -> None:
        self._world = world
        self.unset = list(budgets)
        self._set: list[BudgetPlan] = []
        self._lifted: set[str] = set()
        self._token: str | None = None

    def set_budgets(self) -> None:
        """Set the budgets whose request has not been confirmed, and add the member of the team."""
        if not self.unset:
            return
        if self._token is None:
            wanted = InvitationRequest(team=_TEAM)
            status, reply = self._world.ask(
                "POST", f"/v1/people/{_MEMBER}", InvitationRequest, wanted
            )
            if status != 200:
                return
            self._token = reply["token"]
        for budget in list(self.unset):
            request = BudgetRequest(
                month_usd=_decimal(budget.month_usd),
                total_usd=_decimal(budget.total_usd),
                hourly_usd=_decimal(budget.hourly_usd),
            )
            path = f"/v1/budgets/{budget.scope}"
            if self._world.ask("PUT", path, BudgetRequest, request)[0] == 200:
                self.unset.remove(budget)
                self._set.append(budget)

    def token_of(self, plan: JobPlan) -> str:
        """Return the token of the person who submits a job."""
        return self._token if plan.is_of_team and self._token is not None else TOKEN

    def lift(self) -> None:
        """Remove the budgets and the ceilings of jobs, as far as that has not been confirmed."""
        for budget in list(self._set):
            if self._world.ask("DELETE", f"/v1/budgets/{budget.scope}")[0] in (204, 404):
                self._set.remove(budget)
        for name, plan in sorted(self._world.plans.items()):
            if name in self._lifted or not bounds_of(plan).has_ceiling:
                continue
            bounds = InstanceBounds(plan.minimum, plan.maximum, spot=plan.spot)
            change = Change(instances=bounds)
            if self._world.ask("PATCH", f"/v1/jobs/{name}", Change, change)[0] in (200, 409):
                self._lifted.add(name)


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
