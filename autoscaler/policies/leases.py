"""Leases: a job keeps what it was given for a while before others may have it."""

from __future__ import annotations

import math

from autoscaler.domain.snapshot import JobSnapshot, Snapshot


def lease_runs(job: JobSnapshot, snapshot: Snapshot, lease_seconds: float) -> bool:
    """Leases follow each other from the last change on; between plans one may have ended."""
    since_seconds = job.service.changed_seconds
    if job.placement is None or since_seconds is None:
        return False
    held_seconds = max(snapshot.now_seconds - since_seconds, 0.0)
    into_seconds = math.fmod(held_seconds, lease_seconds)
    return held_seconds < lease_seconds or into_seconds >= snapshot.replan_seconds
