"""Changes that trigger a new plan: not time alone, progress or a drifting noise scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.controller.clock_jumps import awaits_retry
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.snapshot import Snapshot, ThroughputModel
from autoscaler.economics.supply.caches import IdentityKey


def replan_triggers(snapshot: Snapshot) -> tuple[object, ...]:
    """Return the parts of a snapshot that trigger a new plan when they change."""
    jobs = tuple(
        (
            job.id,
            job.objective,
            job.instances,
            job.weight,
            job.batch,
            job.held,
            job.placement,
            job.trained,
            job.standby,
            IdentityKey(job.models),
            job.noise is None,
            job.remaining_examples is None,
            job.budgets,
        )
        for job in snapshot.jobs
    )
    studies = tuple(
        (
            study.terms,
            study.free,
            tuple(
                (
                    trial.stands.job,
                    trial.stands.has_ended,
                    trial.stands.waits,
                    len(trial.speeds),
                )
                for trial in study.trials
            ),
        )
        for study in snapshot.studies
    )
    used_up = tuple(budget.scope for budget in snapshot.budgets if budget.used_up)
    return (snapshot.offers, snapshot.limits, snapshot.unavailable, jobs, studies, used_up)


def standing(
    job: JobRecord,
    instances: Sequence[HeldInstance],
    models: Mapping[str, ThroughputModel],
    now_seconds: float,
) -> tuple[object, ...]:
    """Return the inputs of a job's part of `replan_triggers`, known before a snapshot is taken.

    While they are unchanged, the job triggers no new plan.
    """
    report = job.report
    return (
        job.spec,
        job.started_seconds is None,
        awaits_retry(job, now_seconds),
        IdentityKey(models),
        None if report is None else report.bounds,
        report is None or report.noise is None,
        None if report is None else report.total_examples,
        tuple(
            (held.id, held.phase, held.desired, held.devices_used, held.stands_by)
            for held in instances
        ),
    )
