"""What asks for a new plan: time alone does not, nor do progress and a noise scale that drifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.snapshot import Snapshot, ThroughputModel
from autoscaler.economics.keeping import Same


def news_in(snapshot: Snapshot) -> tuple[object, ...]:
    """What of a snapshot, if it changes, asks for a new plan."""
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
            Same(job.models),
            job.noise is None,
            job.remaining_examples is None,
        )
        for job in snapshot.jobs
    )
    studies = tuple(
        (
            study.terms,
            study.free,
            tuple(
                (
                    each.stands.job,
                    each.stands.has_ended,
                    each.stands.waits,
                    len(each.speeds),
                )
                for each in study.trials
            ),
        )
        for study in snapshot.studies
    )
    return (snapshot.offers, snapshot.limits, snapshot.unavailable, jobs, studies)


def standing(
    job: JobRecord,
    instances: Sequence[HeldInstance],
    models: Mapping[str, ThroughputModel],
    now_seconds: float,
) -> tuple[object, ...]:
    """What a job's part in `news_in` is made of, before it is: while it stays, there is none."""
    report = job.report
    return (
        job.spec,
        job.started_seconds is None,
        job.retry_seconds is not None and job.retry_seconds > now_seconds,
        Same(models),
        None if report is None else report.bounds,
        report is None or report.noise is None,
        None if report is None else report.total_examples,
        tuple(
            (held.id, held.phase, held.desired, held.devices_used, held.stands_by)
            for held in instances
        ),
    )
