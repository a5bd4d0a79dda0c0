"""Discount on the gain of a job that has to restart for it."""

from __future__ import annotations

from autoscaler.domain.snapshot import JobSnapshot

# Lower bound of the factor: even a job that only restarted so far is worth some devices.
LEAST_FACTOR = 1e-3


def restart_factor(job: JobSnapshot, now_seconds: float, restart_seconds: float) -> float:
    """Return ``max(age - restarts * s, 0) / (age + s)``, in [0, 1), s the seconds of a restart.

    Source: Pollux (OSDI'21) section 4.2; Sia (SOSP'23) section 3.4.
    """
    age_seconds = max(now_seconds - job.submitted_seconds, 0.0)
    left_seconds = max(age_seconds - job.service.restarts * restart_seconds, 0.0)
    return left_seconds / (age_seconds + restart_seconds)
