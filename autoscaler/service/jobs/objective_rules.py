"""Checks of a deadline and a budget against what is possible now."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Offer

_DEADLINE: Final = "objective.deadline"
_BUDGET: Final = "objective.budget"


def require_reachable(objective: Objective, offers: Sequence[Offer], now_seconds: float) -> None:
    """Check that one of the offers boots before the deadline, and within the budget.

    Raises:
        SpecError: none does.
    """
    boots_seconds = min((offer.boot_seconds for offer in offers), default=0.0)
    deadline_seconds = objective.deadline_seconds
    if deadline_seconds is not None:
        left_seconds = deadline_seconds - now_seconds
        if left_seconds <= boots_seconds:
            away = (
                f"it is {left_seconds:.0f} s away, and an instance alone takes "
                f"{boots_seconds:.0f} s to boot"
                if left_seconds > 0
                else "it has passed"
            )
            raise SpecError(f"{away}: set a later one, as objective=deadline=2h", _DEADLINE)
    if objective.budget_usd is not None and offers:
        boot_usd = min(offer.usd_per_second * offer.boot_seconds for offer in offers)
        if float(objective.budget_usd) <= boot_usd:
            raise SpecError(
                f"${objective.budget_usd} does not pay for the boot of one instance "
                f"(${boot_usd:.4f}): set a larger one",
                _BUDGET,
            )


def require_above_spent(budget_usd: Decimal, spent_usd: Decimal, job: str) -> None:
    """Check that a new budget of a job is above what the job has spent.

    Raises:
        SpecError: it is not, so the job would stop at once.
    """
    if budget_usd <= spent_usd:
        raise SpecError(
            f"${budget_usd} is not above the ${spent_usd:.4f} that {job} has spent: set a larger "
            f"one, or stop the job: castor stop {job}",
            _BUDGET,
        )
