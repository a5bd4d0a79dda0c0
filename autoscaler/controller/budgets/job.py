"""Budget of one job, enforced by ending the job before the budget is exceeded."""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.controller.budgets.leave_limits import last_saves_usd, usual_seconds
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store


def is_job_budget_used_up(
    store: Store, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float
) -> bool:
    """Return whether a job has to leave its `instances` now to stay within its budget.

    Instances cost until they have drained and the cloud has ended them. A job without instances
    spends nothing.
    """
    budget_usd = job.spec.objective.most_usd
    if budget_usd is None or not instances:
        return False
    rate_usd_per_hour = float(sum(held.costing_usd_per_hour for held in instances))
    leaving_usd = rate_usd_per_hour * usual_seconds(job) / 3600
    leaving_usd += float(last_saves_usd([job], instances))
    spent_usd = float(Ledger(store.ledger.entries(job.id)).spent(job.id, now_seconds))
    return spent_usd + leaving_usd >= float(budget_usd)


def budget_cause(store: Store, job: JobRecord) -> str:
    """Return why a job with a used-up budget ends, and what its owner can do."""
    sent_usd = Ledger(store.ledger.entries(job.id)).transfers(lambda charge: charge.job)
    sent_text = (
        f", ${sent_usd[job.id]:.2f} of it for transfers of its files"
        if sent_usd.get(job.id)
        else ""
    )
    objective = job.spec.objective
    if objective.budget_usd is None:
        return (
            f"budget of ${objective.cap_usd} used up{sent_text}, the default of this deployment "
            "for jobs without a budget: resume it with objective=budget=AMOUNT, or budget=none"
        )
    return (
        f"budget of ${objective.budget_usd} used up{sent_text}: submit it again with a larger "
        "budget"
    )
