"""Budget of all jobs of a deployment together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from decimal import Decimal

from autoscaler.controller.budgets.leave_limits import last_saves_usd, usual_seconds
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_AT_WORK = (JobPhase.PENDING, JobPhase.RUNNING)
_SECONDS_PER_HOUR = 3600
# The ledger is summed this often; in between the prices of the held instances are added.
_LEDGER_SECONDS = 30.0


class FleetBudget:
    """Budget of all jobs together, counted from the deployment's first instance.

    Every job is ended before the ledger's total and the cost of leaving exceed `budget_usd`. None:
    there is no budget.
    """

    def __init__(self, store: Store, budget_usd: Decimal | None) -> None:
        self._store = store
        self._budget_usd = budget_usd
        # The ledger's total in US dollars, and the time at which it was summed.
        self._ledger_total = (Decimal(0), float("-inf"))

    def guard(
        self, jobs: Sequence[JobRecord], held: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Stop all `jobs` if the budget is used up.

        `jobs` are those that have not ended, `held` all instances that cost money.
        """
        if not self.is_used_up(jobs, held, now_seconds):
            return
        cause = (
            f"the fleet budget of ${self._budget_usd} is used up: run castor serve with a larger "
            "--fleet-usd, and submit the job again"
        )
        for job in jobs:
            if job.phase in _AT_WORK:
                self._store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, cause)
                self._store.events.add(Event(now_seconds, "budget", cause, job.id))
                _log.info("%s budget: %s", job.id, cause)

    @property
    def is_limited(self) -> bool:
        """Whether there is a budget."""
        return self._budget_usd is not None

    def is_used_up(
        self, jobs: Sequence[JobRecord], held: Sequence[HeldInstance], now_seconds: float
    ) -> bool:
        """Return whether all jobs have to leave their instances now to stay within the budget."""
        if self._budget_usd is None:
            return False
        usd_per_hour = sum((instance.costing_usd_per_hour for instance in held), Decimal(0))
        leaving_seconds = max(map(usual_seconds, jobs), default=0.0) if held else 0.0
        spent_usd = self._spent(usd_per_hour, now_seconds)
        leaving_usd = _cost(usd_per_hour, leaving_seconds) + last_saves_usd(jobs, held)
        return spent_usd + leaving_usd >= self._budget_usd

    def _spent(self, usd_per_hour: Decimal, now_seconds: float) -> Decimal:
        """Return the total cost up to now. Safe to call from workers beside the loop."""
        spent_usd, summed_seconds = self._ledger_total
        since_seconds = now_seconds - summed_seconds
        if since_seconds >= _LEDGER_SECONDS:
            spent_usd = Ledger(self._store.ledger.entries()).total(now_seconds)
            self._ledger_total, since_seconds = (spent_usd, now_seconds), 0.0
        return spent_usd + _cost(usd_per_hour, max(since_seconds, 0.0))


def _cost(usd_per_hour: Decimal, seconds: float) -> Decimal:
    return usd_per_hour * Decimal(seconds) / _SECONDS_PER_HOUR
