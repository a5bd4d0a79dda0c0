"""Training sessions of jobs' scripts: whether a script has opened one.

Several instances of a script without a session would each train alone. So a single instance runs
the script until a session was opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from autoscaler.controller.jobs.gangs import bounds_of_one_gang
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobRecord, ParallelismSpec
from autoscaler.domain.offer import Offer
from autoscaler.store.store import Store

GRACE_SECONDS: Final = 60.0

ONE_INSTANCE_TEXT: Final = "a script without a session runs on one instance"
FIXED_SIZE_TEXT: Final = "without restart.progress it keeps its number of instances"
_NO_SESSION: Final = (
    "its script has opened no session, so it runs {where} and reports no progress: "
    "see docs/training.md"
)
SESSIONLESS_TEXT: Final = _NO_SESSION.format(where="on one instance")

_ALONE: Final = ParallelismSpec()
_HAS_LEFT: Final = (InstancePhase.DRAINED, InstancePhase.ENDED)


def session_facts(
    held: HeldInstance, phase: InstancePhase, has_session: bool, now_seconds: float
) -> dict[str, str]:
    """Return the new facts of an instance that reports its phase and whether it has a session.

    Only the leader of a gang opens one.
    """
    if held.seat is not None and held.seat.index > 0:
        return {}
    if has_session:
        return {} if held.session_seconds is not None else {Fact.SESSION: str(now_seconds)}
    unopened_seconds = held.unopened_seconds
    if unopened_seconds is None:
        return {Fact.UNOPENED: str(now_seconds)} if phase is InstancePhase.STARTING else {}
    has_run = InstancePhase.STARTING in (phase, held.phase)  # runs now, or ran until this report
    is_known = held.without_session_seconds is not None
    if not has_run or now_seconds - unopened_seconds < GRACE_SECONDS or is_known:
        return {}
    return {Fact.WITHOUT_SESSION: str(now_seconds)}


def has_opened_session(job: JobRecord, instances: Iterable[HeldInstance]) -> bool:
    """Return whether the job's script has ever opened a session.

    `instances` are all that the job has had. A trial's worker opens a session for its objective if
    that trains. A restartable job needs none to run on several instances, and counts as if it had
    one.
    """
    if job.spec.study is not None or job.spec.restart is not None or job.report is not None:
        return True
    return any(held.session_seconds is not None for held in instances)


def is_without_session(job: JobRecord, instances: Iterable[HeldInstance]) -> bool:
    """Return whether the script has run for longer than the grace period without a session.

    `instances` are all that the job has had. The result stays True after the script has ended,
    because its next start opens no session either.
    """
    all_instances = tuple(instances)
    return not has_opened_session(job, all_instances) and any(
        held.without_session_seconds is not None for held in all_instances
    )


def is_known_without_session(store: Store, job: JobRecord) -> bool:
    """Return `is_without_session` for the job's instances in the store."""
    if has_opened_session(job, ()):
        return False
    return is_without_session(job, store.instances.of_job(job.id, include_ended=True))


def first_starter(instances: Iterable[HeldInstance]) -> HeldInstance | None:
    """Return the instance chosen to start the script before any session; None if none is."""
    return next(
        (held for held in instances if held.starts_first and held.phase not in _HAS_LEFT),
        None,
    )


def bounds_without_session(
    bounds: InstanceBounds,
    parallelism: ParallelismSpec = _ALONE,
    offers: Sequence[Offer] = (),
) -> InstanceBounds:
    """Return bounds of one world, for a job whose script has opened no session.

    The world is one instance, or one gang of instances that hold a copy of the model together.
    """
    if parallelism.shard > 1:
        return bounds_of_one_gang(bounds, parallelism, offers)
    return replace(bounds, minimum=1, maximum=1)


def fixed_size_text(job: JobRecord) -> str | None:
    """Return why a restartable job has one size; None for jobs whose sizes can be measured."""
    restart = job.spec.restart
    return FIXED_SIZE_TEXT if restart is not None and restart.progress is None else None


def sessionless_text(job: JobRecord) -> str:
    """Return the message for a job whose script runs without a session."""
    minimum = job.spec.instances.minimum
    if job.spec.parallelism.shard > 1:
        return _NO_SESSION.format(where="in one gang of instances")
    if minimum <= 1:
        return SESSIONLESS_TEXT
    return (
        f"{SESSIONLESS_TEXT}; its minimum of {minimum} instances needs a session: open one in the "
        f"script, or castor set {job.id} min=1"
    )
