"""Weights of jobs where limits bind, from users' shares and jobs' priorities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from autoscaler.domain.job import JobRecord

# Share of a user without a stated share.
USUAL_SHARE = 1.0


def weights(jobs: Sequence[JobRecord], shares: Mapping[str, float]) -> dict[str, float]:
    """Return the weight of each job, by id.

    A user's share, relative to all users with jobs, is divided equally over that user's jobs, so
    that more jobs do not increase it. These parts have a mean of 1 over all jobs, and each is
    multiplied by the job's priority. Without shares the weight is the priority.

    Args:
        jobs: all competing jobs; jobs without a known submitter count as one user's.
        shares: user -> share above 0; other users have `USUAL_SHARE`.
    """
    if not shares:
        return {job.id: job.spec.priority for job in jobs}
    counts = Counter(job.spec.person for job in jobs)
    share_of_person = {person: _share(person, shares) for person in counts}
    scale = len(jobs) / sum(share_of_person.values()) if jobs else 0.0
    return {
        job.id: scale
        * share_of_person[job.spec.person]
        / counts[job.spec.person]
        * job.spec.priority
        for job in jobs
    }


def _share(person: str | None, shares: Mapping[str, float]) -> float:
    return USUAL_SHARE if person is None else shares.get(person, USUAL_SHARE)
