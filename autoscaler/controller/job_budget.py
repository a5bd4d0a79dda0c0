"""Budget of one job, held by ending the job before it is passed."""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.controller.leaving import last_saves_usd, usual_seconds
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store


def is_job_budget_used_up(
    store: Store, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float
) -> bool:
    """Return whether a job has to leave its `instances` now to stay within its budget.

    What a job holds goes on costing until it has drained and the cloud has ended it. A job that
    holds nothing spends nothing.
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
    """Return why a job ends whose budget is used up, and the way out."""
    sent_usd = Ledger(store.ledger.entries(job.id)).transfers(lambda charge: charge.job)
    sent_text = (
        f", ${sent_usd[job.id]:.2f} of it by its files on their way"
        if sent_usd.get(job.id)
        else ""
    )
    objective = job.spec.objective
    if objective.budget_usd is None:
        return (
            f"budget of ${objective.cap_usd} used up{sent_text}, which this deployment gives to "
            "jobs that name none: resume it with objective=budget=AMOUNT, or budget=none"
        )
    return (
        f"budget of ${objective.budget_usd} used up{sent_text}: submit it again with a larger "
        "budget"
    )
