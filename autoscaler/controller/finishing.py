"""The last moments of a job: replicas that have done their part, and the one that tells the end.

The replica that decides saves the job's last state and then says that it is complete. The others
leave before, and know nothing of how that went.
"""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobRecord

COMPLETE_FACT = "complete"
DONE_FACT = "done"

_AT_WORK = (
    InstancePhase.PREPARING,
    InstancePhase.READY,
    InstancePhase.STARTING,
    InstancePhase.TRAINING,
    InstancePhase.WAITING,
    InstancePhase.DRAINING,
)


def has_done_its_part(held: HeldInstance, job: JobRecord) -> bool:
    """Nothing is left for it to do in the job's present attempt."""
    return COMPLETE_FACT in held.facts or held.facts.get(DONE_FACT) == str(job.attempt)


def is_over(job: JobRecord, instances: Iterable[HeldInstance]) -> bool:
    """Training has come to its end in this attempt; `instances` are all that the job ever had."""
    return any(has_done_its_part(held, job) for held in instances)


def at_work(job: JobRecord, instances: Iterable[HeldInstance]) -> list[HeldInstance]:
    """Those that may still tell the end."""
    return [
        held for held in instances if held.phase in _AT_WORK and not has_done_its_part(held, job)
    ]
