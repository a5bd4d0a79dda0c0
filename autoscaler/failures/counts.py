"""Counts of recent failures by job, owner, machine and offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.report import Failure
from autoscaler.failures.consequences import CONSEQUENCES

_SUSPECT_STARTS: Final = 3
_SUSPECT_PROGRAMS: Final = 2


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A failed start: its job, the job's owner, and the offer of its instance, None if unknown.

    `program` names the study of a trial, else the program of the job.
    """

    job: str
    person: str | None
    program: str
    offer: str | None
    failure: Failure


def counts_text(start: FailedStart, recent: Iterable[FailedStart]) -> str:
    """Return the numbers of failed starts that share the job, owner, machine or offer of one."""
    starts, instance = list(recent), start.failure.instance
    count = _count(starts, lambda other: other.job == start.job)
    parts = [f"{count} of this job"]
    if start.person is not None:
        count = _count(starts, lambda other: other.person == start.person)
        parts.append(f"{count} of its owner")
    count = _count(starts, lambda other: other.failure.instance == instance)
    parts.append(f"{count} on {instance}")
    if start.offer is not None:
        count = _count(starts, lambda other: other.offer == start.offer)
        parts.append(f"{count} on {start.offer}")
    return ", ".join(parts)


def jobs_alike(
    job: str, person: str | None, failure: Failure, recent: Iterable[FailedStart]
) -> int:
    """Return the number of an owner's other jobs with a failure of the same signature.

    It is 0 for failures that may pass by themselves or are the machine's, and for those after
    which the next start has more memory, fewer examples at once or another instance type.
    """
    rule = CONSEQUENCES[failure.category]
    is_of_machine = rule.is_free or rule.ends_machine
    starts_otherwise = rule.is_elsewhere or rule.needs_device_memory
    if rule.is_transient or is_of_machine or starts_otherwise or not failure.signature:
        return 0
    return len(
        {
            start.job
            for start in recent
            if start.job != job
            and start.person == person
            and start.failure.signature == failure.signature
        }
    )


def is_suspect(offer: str, recent: Iterable[FailedStart]) -> bool:
    """Return whether several programs failed on an offer's machines, for reasons of the machines.

    All trials of a study, and jobs of one program, have the same code: that may be the reason.
    """
    blamed = [
        start
        for start in recent
        if start.offer == offer and CONSEQUENCES[start.failure.category].ends_machine
    ]
    programs = {(start.person, start.program) for start in blamed}
    return len(blamed) >= _SUSPECT_STARTS and len(programs) >= _SUSPECT_PROGRAMS


def _count(starts: Iterable[FailedStart], belongs: Callable[[FailedStart], bool]) -> int:
    return sum(1 for start in starts if belongs(start))
