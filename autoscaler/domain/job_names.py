"""Meaning of a job's name, which several jobs of several people may have had.

At most one job of a name has not ended. All requests that name a job follow the same rule, so that
a person who looks at a job and then changes it has the same job before them.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.domain.access import Identity
from autoscaler.domain.errors import Conflict
from autoscaler.domain.job import JobRecord


def meant_job(jobs: Sequence[JobRecord], requester: Identity) -> JobRecord:
    """Return the job that a requester means by a name.

    It is the newest of the requester's own jobs of the name, else of the team's, else of all. A
    job that has not ended is the newest one of its name.

    Args:
        jobs: all jobs of the name, the oldest first, at least one.
        requester: person who names the job.
    """
    own_jobs = [job for job in jobs if job.spec.owner.person == requester.person]
    team_jobs = [job for job in jobs if job.spec.owner.is_shared_with(requester)]
    return (own_jobs or team_jobs or jobs)[-1]


def require_one_meaning(
    name: str, jobs: Sequence[JobRecord], meant: JobRecord, requester: Identity
) -> None:
    """Check that a change can't be for a job of another person with the same name.

    A job that runs is meant, and so is an ended one of the requester beside other ended ones.

    Args:
        name: name in the request.
        jobs: all jobs of the name that the requester may change, the oldest first.
        meant: what `meant_job` returns for the name.
        requester: person who names the job.

    Raises:
        Conflict: it can; the message lists the jobs.
    """
    if not meant.phase.is_final:
        return
    is_own = meant.spec.owner.person == requester.person
    newest = {job.spec.owner.person: job for job in jobs}
    rivals = [
        job
        for person, job in newest.items()
        if person != meant.spec.owner.person and not (is_own and job.phase.is_final)
    ]
    if rivals:
        candidates = sorted((meant, *rivals), key=lambda job: job.number)
        listed = ", ".join(_candidate_text(job) for job in candidates)
        raise Conflict(f"{name} may mean one of several jobs: {listed}: name it by its id")


def first_of_name(name_or_id: str) -> str | None:
    """Return the name whose first job an id like `digits.1` means; None for any other text.

    The first job of a name has that name as its id. Names have no dots.
    """
    name, _, number = name_or_id.rpartition(".")
    return name if number == "1" and name else None


def exact_name(job_id: str) -> str:
    """Return what names the job of an id, and no later job of its name.

    The id of a name's first job is that name, which means the newest job.
    """
    return job_id if "." in job_id else f"{job_id}.1"


def _candidate_text(job: JobRecord) -> str:
    return f"{exact_name(job.id)} of {job.spec.owner.person} ({job.phase})"
