"""Alarms for jobs whose measured step times persistently contradict their fitted model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.controller.jobs.holdings import trained_allocation
from autoscaler.domain.alarm import AlarmCode, ModelAlarm
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobRecord
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.economics.pricing.wording import number
from autoscaler.goodput.prediction import PredictedStep, predicted_step
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

# An alarm is raised when all checks for this long have found a contradiction.
ALARM_SECONDS = 120.0
CONTRADICTED_EVENT = "model contradicted"
AGREES_EVENT = "model agrees"
_CHECK_SECONDS = 10.0
# Step times of a job with an older last report are not used.
_FRESH_SECONDS = 60.0


@dataclass(slots=True)
class _Watch:
    """State of one job's checks. `since_seconds` is None while its step times are as predicted.

    `is_recorded`: the last event says that the model is contradicted.
    """

    checked_seconds: float
    is_recorded: bool
    since_seconds: float | None = None


class ModelAlarms:
    """Present alarms by job. Events record when an alarm is raised and when it is cleared."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: dict[str, _Watch] = {}
        self._raised: dict[str, ModelAlarm] = {}

    @property
    def raised(self) -> Mapping[str, ModelAlarm]:
        """The present alarms, by job."""
        return dict(self._raised)

    def check(
        self,
        job: JobRecord,
        observations: Sequence[StepObservation],
        models: Mapping[str, ThroughputModel],
        instances: Sequence[HeldInstance],
        now_seconds: float,
    ) -> None:
        """Compare the present step time with the job's model; raise or clear its alarm.

        Nothing changes without a fresh report of a settled step time. `observations` are the job's
        own, the latest configuration first.
        """
        present = _present(job, observations, now_seconds)
        model = None if present is None else models.get(present.device_kind)
        if present is None or model is None:
            return
        watch = self._watched.get(job.id)
        if watch is None:
            watch = self._watched[job.id] = _Watch(now_seconds, self._was_recorded(job.id))
        elif now_seconds - watch.checked_seconds < _CHECK_SECONDS:
            return
        watch.checked_seconds = now_seconds
        predicted = predicted_step(model, present)
        if predicted.least_seconds <= present.step_seconds <= predicted.most_seconds:
            self._clear(job.id, watch, present, predicted)
            return
        if watch.since_seconds is None:
            watch.since_seconds = now_seconds
        if now_seconds - watch.since_seconds >= ALARM_SECONDS:
            size = trained_allocation(instances) or f"{present.devices} x {present.device_kind}"
            alarm = _alarm(watch.since_seconds, present, predicted, str(size))
            self._raised[job.id] = alarm
            self._record(job.id, watch, CONTRADICTED_EVENT, alarm.text)

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop the alarms of all jobs but these."""
        kept_jobs = set(jobs)
        self._watched = {job: watch for job, watch in self._watched.items() if job in kept_jobs}
        self._raised = {job: alarm for job, alarm in self._raised.items() if job in kept_jobs}

    def _clear(
        self, job: str, watch: _Watch, present: StepObservation, predicted: PredictedStep
    ) -> None:
        watch.since_seconds = None
        self._raised.pop(job, None)
        if watch.is_recorded:
            self._record(job, watch, AGREES_EVENT, _words(present, predicted))

    def _record(self, job: str, watch: _Watch, kind: str, text: str) -> None:
        """Record an event unless the last one was of the same kind."""
        is_contradicted = kind == CONTRADICTED_EVENT
        if watch.is_recorded != is_contradicted:
            self._store.events.add(Event(watch.checked_seconds, kind, text, job))
            watch.is_recorded = is_contradicted

    def _was_recorded(self, job: str) -> bool:
        """Return whether the job's last alarm event raised one, at any time."""
        for event in self._store.events.latest(job):
            if event.kind in (CONTRADICTED_EVENT, AGREES_EVENT):
                return event.kind == CONTRADICTED_EVENT
        return False


def _present(
    job: JobRecord, observations: Sequence[StepObservation], now_seconds: float
) -> StepObservation | None:
    """Return the step time of the present configuration; None without a fresh, settled one."""
    if not observations or job.report is None or job.reported_seconds is None:
        return None
    latest = observations[0]
    is_current_size = (latest.instances, latest.devices) == (
        job.report.replicas,
        job.report.devices,
    )
    is_fresh = now_seconds - job.reported_seconds <= _FRESH_SECONDS
    return latest if is_current_size and is_fresh and latest.is_settled else None


def _alarm(
    since_seconds: float, present: StepObservation, predicted: PredictedStep, size: str
) -> ModelAlarm:
    return ModelAlarm(
        code=AlarmCode.MODEL_CONTRADICTED,
        text=f"{_words(present, predicted)} at {size}: what is planned from the model may be off",
        since_seconds=since_seconds,
        measured_step_seconds=present.step_seconds,
        predicted_step_seconds=predicted.seconds,
        least_step_seconds=predicted.least_seconds,
        most_step_seconds=predicted.most_seconds,
    )


def _words(present: StepObservation, predicted: PredictedStep) -> str:
    return (
        f"measured {number(present.step_seconds)} s a step, predicted "
        f"{number(predicted.seconds)} s ({number(predicted.least_seconds)}-"
        f"{number(predicted.most_seconds)})"
    )
