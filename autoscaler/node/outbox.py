"""Reports that await an answer of the controller."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.activity import Activity
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.report import (
    Ending,
    Failure,
    MembershipPause,
    StepObservation,
    TrainingReport,
)
from autoscaler.domain.report_rules import MOST_OBSERVATIONS, MOST_PAUSES
from autoscaler.wire.messages import NodeReport


@dataclass(frozen=True, slots=True)
class Standing:
    """Status of an instance. Only the newest status is reported."""

    phase: InstancePhase
    attempt: int
    devices_used: int
    started_seconds: float | None = None
    is_done: bool = False
    is_complete: bool = False
    reclaim_seconds: float | None = None
    job: str | None = None
    has_session: bool = False
    ending: Ending | None = None
    stop_reason: str | None = None
    rendezvous: str | None = None
    generation: int = 0
    is_generation_over: bool = False
    saved: str | None = None
    activity: Activity | None = None


class Outbox:
    """Source of the agent's reports, one at a time; a report is repeated until it is answered.

    Threads may share an outbox.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._standing: Standing | None = None
        self._sent_standing: Standing | None = None
        self._answered_standing: Standing | None = None
        self._report: TrainingReport | None = None
        self._failure: Failure | None = None
        self._notes: list[str] = []
        self._sent: NodeReport | None = None
        self._lock = threading.Lock()

    def stand(self, standing: Standing) -> bool:
        """Set the status; return whether it changed.

        If the job changed, an unsent training report and failure of the earlier job are dropped.
        """
        with self._lock:
            if self._standing is not None and standing.job != self._standing.job:
                self._report = self._failure = None
            is_new = standing != self._standing
            self._standing = standing
            return is_new

    def add_report(self, report: TrainingReport) -> None:
        """Add a training report, merged with the unsent one."""
        with self._lock:
            self._report = report if self._report is None else merge(self._report, report)

    def add_failure(self, failure: Failure) -> None:
        """Add a failed start, in place of an unsent one."""
        with self._lock:
            self._failure = failure

    def add_notes(self, notes: Sequence[str]) -> None:
        """Add messages for people."""
        with self._lock:
            self._notes += notes

    @property
    def has_news(self) -> bool:
        """Whether a new status or a failure should be sent before the next heartbeat is due."""
        with self._lock:
            return self._standing != self._sent_standing or self._failure is not None

    def is_heard(self, standing: Standing) -> bool:
        """Return whether the controller has answered this status, and nothing is left to send."""
        with self._lock:
            waiting = (self._sent, self._report, self._failure, *self._notes)
            return self._answered_standing == standing and not any(waiting)

    @property
    def holds_failure(self) -> bool:
        """Whether a failure is unanswered."""
        with self._lock:
            is_sent = self._sent is not None and self._sent.failure is not None
            return is_sent or self._failure is not None

    def next_report(self) -> NodeReport:
        """Return the report to send: the unanswered one, else a new one with everything unsent.

        `stand` must have been called before.
        """
        with self._lock:
            if self._sent is None:
                self._sent = self._compose()
            return self._sent

    def answered(self) -> None:
        """Mark the last report as answered."""
        with self._lock:
            self._sent = None
            self._answered_standing = self._sent_standing

    def refused(self) -> None:
        """Drop the last report, which the controller refused; only its failure is sent again."""
        with self._lock:
            if self._sent is not None:
                self._failure = self._failure or self._sent.failure
            self._sent = None

    def _compose(self) -> NodeReport:
        assert self._standing is not None
        standing = self._sent_standing = self._standing
        reports = () if self._report is None else (self._report,)
        composed = NodeReport(
            instance=self._instance,
            phase=standing.phase,
            attempt=standing.attempt,
            devices_used=standing.devices_used,
            started_seconds=standing.started_seconds,
            reports=reports,
            failure=self._failure,
            is_done=standing.is_done,
            is_complete=standing.is_complete,
            reclaim_seconds=standing.reclaim_seconds,
            notes=tuple(self._notes),
            job=standing.job,
            has_session=standing.has_session,
            ending=standing.ending,
            stop_reason=standing.stop_reason,
            rendezvous=standing.rendezvous,
            generation=standing.generation,
            is_generation_over=standing.is_generation_over,
            saved=standing.saved,
            activity=standing.activity,
        )
        self._report = self._failure = None
        self._notes = []
        return composed


def merge(earlier: TrainingReport, later: TrainingReport) -> TrainingReport:
    """Return the later report with the observations and pauses of both, up to a limit.

    Above the limit, the step times of each configuration become one mean observation. If that is
    still above the limit, the oldest are dropped.
    """
    observations = (*earlier.observations, *later.observations)
    if len(observations) > MOST_OBSERVATIONS:
        observations = _condensed(observations)
    pauses: tuple[MembershipPause, ...] = (*earlier.pauses, *later.pauses)
    return replace(
        later,
        observations=observations[-MOST_OBSERVATIONS:],
        pauses=pauses[-MOST_PAUSES:],
    )


def _condensed(observations: Sequence[StepObservation]) -> tuple[StepObservation, ...]:
    """Return one observation for each configuration: the mean over all its steps."""
    means: dict[StepObservation, StepObservation] = {}
    for observation in observations:
        configuration = replace(observation, step_seconds=0.0, sync_seconds=0.0, steps=0)
        known = means.get(configuration, configuration)
        means[configuration] = replace(
            observation,
            step_seconds=_mean(
                known.step_seconds, known.steps, observation.step_seconds, observation.steps
            ),
            sync_seconds=_mean(
                known.sync_seconds, known.steps, observation.sync_seconds, observation.steps
            ),
            steps=known.steps + observation.steps,
        )
    return tuple(means.values())


def _mean(first: float, first_weight: int, second: float, second_weight: int) -> float:
    total = first_weight + second_weight
    return (first * first_weight + second * second_weight) / total if total else 0.0
