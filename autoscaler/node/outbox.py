"""What the controller is still to be told, kept while it is away."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """How things stand: of this only the newest is told."""

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


class Outbox:
    """Makes the agent's reports, one after the other; each is the same until it was answered.

    Safe to share between threads.
    """

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._standing: Standing | None = None
        self._told: Standing | None = None
        self._heard: Standing | None = None
        self._report: TrainingReport | None = None
        self._failure: Failure | None = None
        self._notes: list[str] = []
        self._sent: NodeReport | None = None
        self._lock = threading.Lock()

    def stand(self, standing: Standing) -> bool:
        """Let things stand like this; whether that is news.

        What was to be told of another job is dropped.
        """
        with self._lock:
            if self._standing is not None and standing.job != self._standing.job:
                self._report = self._failure = None
            is_news = standing != self._standing
            self._standing = standing
            return is_news

    def add_report(self, report: TrainingReport) -> None:
        """Tell of training, together with what was not told before."""
        with self._lock:
            self._report = report if self._report is None else merge(self._report, report)

    def add_failure(self, failure: Failure) -> None:
        """Tell of a failed start."""
        with self._lock:
            self._failure = failure

    def add_notes(self, notes: Sequence[str]) -> None:
        """Tell what people should know."""
        with self._lock:
            self._notes += notes

    @property
    def has_news(self) -> bool:
        """There is something that should not wait for the next heartbeat."""
        with self._lock:
            return self._standing != self._told or self._failure is not None

    def is_heard(self, standing: Standing) -> bool:
        """The controller has heard that things stand like this, and of all there was to tell."""
        with self._lock:
            waiting = (self._sent, self._report, self._failure, *self._notes)
            return self._heard == standing and not any(waiting)

    @property
    def holds_failure(self) -> bool:
        """A failure was not answered yet."""
        with self._lock:
            is_sent = self._sent is not None and self._sent.failure is not None
            return is_sent or self._failure is not None

    def next_report(self) -> NodeReport:
        """What to send now: what was sent last if it was not answered, else all there is.

        It has been told how things stand.
        """
        with self._lock:
            if self._sent is None:
                self._sent = self._compose()
            return self._sent

    def answered(self) -> None:
        """The controller has taken in what was sent last."""
        with self._lock:
            self._sent = None
            self._heard = self._told

    def refused(self) -> None:
        """The controller does not take what was sent last: of it, only a failure is told again."""
        with self._lock:
            if self._sent is not None:
                self._failure = self._failure or self._sent.failure
            self._sent = None

    def _compose(self) -> NodeReport:
        assert self._standing is not None
        standing = self._told = self._standing
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
        )
        self._report = self._failure = None
        self._notes = []
        return composed


def merge(earlier: TrainingReport, later: TrainingReport) -> TrainingReport:
    """The later state with the observations and pauses of both, up to a bound.

    Beyond it, step times of one configuration become one observation, which loses their scatter;
    of what is still too much the oldest goes.
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
    """One observation for each configuration: the mean over all its steps."""
    sums: dict[StepObservation, StepObservation] = {}
    for each in observations:
        setting = replace(each, step_seconds=0.0, sync_seconds=0.0, steps=0)
        known = sums.get(setting, setting)
        sums[setting] = replace(
            each,
            step_seconds=_mean(known.step_seconds, known.steps, each.step_seconds, each.steps),
            sync_seconds=_mean(known.sync_seconds, known.steps, each.sync_seconds, each.steps),
            steps=known.steps + each.steps,
        )
    return tuple(sums.values())


def _mean(first: float, first_weight: int, second: float, second_weight: int) -> float:
    total = first_weight + second_weight
    return (first * first_weight + second * second_weight) / total if total else 0.0
