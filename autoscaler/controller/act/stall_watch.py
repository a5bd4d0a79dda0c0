"""Watch for jobs that cost money and do not learn: told as events, paused if the job says so."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autoscaler.domain.activity import STALL
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord, StallPolicy
from autoscaler.domain.report import TrainingReport
from autoscaler.failures.stalls import (
    FIRST_STEP_SECONDS,
    LossReport,
    Observation,
    ReplicaActivity,
    Stall,
    find_stall,
)
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

STALL_OVER = "stall over"

_LOSS = "loss"
_REPORTS_REMEMBERED = 60
_RUNNING = (InstancePhase.STARTING, InstancePhase.TRAINING)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Watched:
    """Memory of a job: its instances and their last change, its reports, its stall."""

    running: frozenset[str] = frozenset()
    changed_seconds: float = 0.0
    trainings: deque[LossReport] = field(default_factory=lambda: deque(maxlen=_REPORTS_REMEMBERED))
    stall: Stall | None = None


class StallWatch:
    """Present stalls by job. Memory only: after a restart of the controller they are found again.

    For one thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: dict[str, _Watched] = {}

    @property
    def stalls(self) -> Mapping[str, str]:
        """The present stalls in words, by job."""
        return {
            job: watched.stall.words
            for job, watched in self._watched.items()
            if watched.stall is not None
        }

    def keep_up(
        self, job: JobRecord, instances: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Look at a job that has not ended; `instances` are those that have not ended."""
        if job.phase is not JobPhase.RUNNING:
            self._watched.pop(job.id, None)
            return
        watched = self._watched.setdefault(job.id, _Watched(changed_seconds=now_seconds))
        _note_instances(watched, instances, now_seconds)
        _note_report(watched, job.report)
        replicas = tuple(ReplicaActivity(held.id, held.activity) for held in _running(instances))
        settled_seconds = max(now_seconds - watched.changed_seconds, 0.0)
        stall = find_stall(Observation(replicas, settled_seconds, tuple(watched.trainings)))
        kind_before = None if watched.stall is None else watched.stall.kind
        watched.stall = stall
        if stall is not None and stall.kind is not kind_before:
            self._tell(job, stall, now_seconds)
        elif stall is None and kind_before is not None:
            self._add_event(job, STALL_OVER, f"it trains again after: {kind_before}", now_seconds)

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop what is remembered of all jobs but these."""
        kept_jobs = set(jobs)
        self._watched = {
            job: watched for job, watched in self._watched.items() if job in kept_jobs
        }

    def _tell(self, job: JobRecord, stall: Stall, now_seconds: float) -> None:
        """Record a stall, and pause the job if its policy says so."""
        self._add_event(job, STALL, f"{stall.kind}: {stall.words}", now_seconds)
        if job.spec.stalls is not StallPolicy.PAUSE:
            return
        cause = (
            f"paused, it does not learn ({stall.kind}: {stall.words}); castor resume {job.id} "
            "continues from its newest checkpoint"
        )
        self._store.jobs.set_phase(job.id, JobPhase.STOPPING, now_seconds, cause)
        self._add_event(job, "paused", cause, now_seconds)

    def _add_event(self, job: JobRecord, kind: str, text: str, now_seconds: float) -> None:
        _log.info("%s %s: %s", job.id, kind, text, extra={"job": job.id})
        self._store.events.add(Event(now_seconds, kind, text, job.id))


def _running(instances: Iterable[HeldInstance]) -> list[HeldInstance]:
    """Return the instances that run the script and lead their gang."""
    return [
        held
        for held in instances
        if held.phase in _RUNNING and (held.seat is None or held.seat.index == 0)
    ]


def _note_instances(
    watched: _Watched, instances: Sequence[HeldInstance], now_seconds: float
) -> None:
    """Note when the job's instances last changed.

    That is now while some start, leave or are in a phase, such as a checkpoint of one of them.
    """
    running = frozenset(held.id for held in instances if held.phase is InstancePhase.TRAINING)
    changes = any(_is_changing(held, bool(running)) for held in instances)
    if changes or running != watched.running or now_seconds < watched.changed_seconds:
        watched.running, watched.changed_seconds = running, now_seconds


def _is_changing(held: HeldInstance, others_train: bool) -> bool:
    """Return whether the others may have to wait for an instance.

    They wait for one that starts, leaves or is in a declared phase. An instance that starts alone
    makes its first steps: it is watched. One that starts beside others joins them, until it has
    had the time of a first step.
    """
    if held.stands_by:
        return False
    if held.desired is Desired.ABSENT or held.reclaim_seconds is not None:
        return True
    activity = held.activity
    if activity is not None and activity.is_in_phase:
        return True
    if held.phase is InstancePhase.STARTING:
        is_late = activity is not None and activity.quiet_seconds >= FIRST_STEP_SECONDS
        return others_train and not is_late
    return held.phase not in (InstancePhase.TRAINING, InstancePhase.WAITING)


def _note_report(watched: _Watched, report: TrainingReport | None) -> None:
    """Remember a training report with a new step; an earlier step starts anew."""
    if report is None:
        return
    training = LossReport(report.step, report.skipped_steps, report.metrics.get(_LOSS))
    last = watched.trainings[-1] if watched.trainings else None
    if last is not None and training.step < last.step:
        watched.trainings.clear()
    if last is None or training.step != last.step:
        watched.trainings.append(training)
