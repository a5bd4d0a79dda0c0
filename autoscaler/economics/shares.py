"""What each job weighs where limits bind: its user's share, and its own priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from autoscaler.domain.job import JobRecord

# Of a user whom the shares do not name.
USUAL_SHARE = 1.0


def weights(jobs: Sequence[JobRecord], shares: Mapping[str, float]) -> dict[str, float]:
    """The weight of each job, by id.

    A user's share of the shares of all users who have jobs is divided equally over that user's
    jobs, so that more jobs do not make it more; over all jobs these parts have a mean of 1, and
    each is multiplied by its job's priority. Without shares the priority is the weight.

    Args:
        jobs: all that compete; those that nobody is known to have submitted are of one user.
        shares: user -> share, above 0; others have `USUAL_SHARE`.
    """
    if not shares:
        return {job.id: job.spec.priority for job in jobs}
    counts = Counter(job.spec.person for job in jobs)
    owned = {person: _share(person, shares) for person in counts}
    each = len(jobs) / sum(owned.values()) if jobs else 0.0
    return {
        job.id: each * owned[job.spec.person] / counts[job.spec.person] * job.spec.priority
        for job in jobs
    }


def _share(person: str | None, shares: Mapping[str, float]) -> float:
    return USUAL_SHARE if person is None else shares.get(person, USUAL_SHARE)
