"""Leases: a job keeps its devices for a fixed time before others may take them."""

from __future__ import annotations

import math

from autoscaler.domain.snapshot import JobSnapshot, Snapshot


def lease_runs(job: JobSnapshot, snapshot: Snapshot, lease_seconds: float) -> bool:
    """Return whether the job's lease runs at this plan.

    Leases follow each other from the last change of the placement on. A lease that ended since the
    previous plan counts as ended.
    """
    since_seconds = job.service.changed_seconds
    if job.placement is None or since_seconds is None:
        return False
    held_seconds = max(snapshot.now_seconds - since_seconds, 0.0)
    into_seconds = math.fmod(held_seconds, lease_seconds)
    return held_seconds < lease_seconds or into_seconds >= snapshot.replan_seconds
