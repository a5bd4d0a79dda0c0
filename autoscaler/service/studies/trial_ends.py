"""Ends of trials, recorded for the controller's job and instance management."""

from __future__ import annotations

from autoscaler.controller.act.job_end import trial_end_facts
from autoscaler.domain.errors import UnknownJob
from autoscaler.domain.facts import Fact
from autoscaler.domain.job import JobPhase
from autoscaler.domain.trial import TrialEnd
from autoscaler.store.store import Store


def record_trial_end(store: Store, study: str, end: TrialEnd, now_seconds: float) -> None:
    """Record the end of a trial, and that its instances will soon be free for the next one.

    A job without instances is stopped, since it has no worker that could end it.

    Raises:
        UnknownJob: the study has no such trial.
    """
    job = store.jobs.get(end.job)
    if job.spec.study != study:
        raise UnknownJob(f"job {job.id} is no trial of study {study}")
    instances = store.instances.of_job(job.id)
    facts = {Fact.ENDING: str(now_seconds), **trial_end_facts(end)}
    for held in instances:
        store.instances.note(held.id, facts)
    if not instances:
        for held in store.instances.of_job(job.id, include_ended=True)[-1:]:
            store.instances.note(held.id, trial_end_facts(end))
    if not instances and not job.phase.is_final:
        store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, end.cause)
