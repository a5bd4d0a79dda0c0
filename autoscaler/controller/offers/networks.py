"""Choice of a job's instances that may train: those in one network, which can reach each other.

A job moves to another network through its checkpoint. The new instances prepare everything, but
their scripts start only when the instances in the old network have left the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autoscaler.domain.instance import HeldInstance, InstancePhase

_LEFT_PHASES: Final = (InstancePhase.DRAINED, InstancePhase.ENDED)


def waits_for_network(held: HeldInstance, job_instances: Iterable[HeldInstance]) -> bool:
    """Return whether an instance has to wait until those of another network have left its job.

    `job_instances` are all instances of the job. Of those that have not left, the first that has
    trained for the job determines its network; else the first whose script was started; else the
    first that joined.
    """
    joined = (other for other in job_instances if other.joined_seconds is not None)
    first = min(
        (other for other in joined if other.phase not in _LEFT_PHASES),
        key=_precedence,
        default=held,
    )
    return first.network != held.network


def _precedence(held: HeldInstance) -> tuple[bool, bool, float, str]:
    """Return the sort key of instances that may determine the job's network.

    The join time of an instance handed over is when it became this job's.
    """
    joined_seconds = max(held.joined_seconds or 0.0, held.requested_seconds)
    never_trained = held.training_seconds is None
    return never_trained, held.phase is not InstancePhase.STARTING, joined_seconds, held.id


def awaits_admission(held: HeldInstance, job_instances: Iterable[HeldInstance]) -> bool:
    """Return whether an instance is ready to train but waits for another network's to leave."""
    return held.phase is InstancePhase.READY and waits_for_network(held, job_instances)
