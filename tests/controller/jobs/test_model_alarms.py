"""Alarms of jobs whose measured step times contradict their model."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from autoscaler.controller.jobs.model_alarms import (
    AGREES_EVENT,
    ALARM_SECONDS,
    CONTRADICTED_EVENT,
    ModelAlarms,
)
from autoscaler.domain.alarm import AlarmCode
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import JobRecord
from autoscaler.domain.report import ReportOrigin, StepObservation
from autoscaler.domain.snapshot import SizeError, ThroughputModel
from autoscaler.goodput.prediction import predicted_step
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, report
from tests.controller.world import World

POINT = ThroughputParameters(0.2, 0.01, 0.02, 1e-3, 0.01, 1e-4, 1.5)
ERRORS = tuple(0.1 * error for error in (-1.5, -0.5, 0.5, 1.5))
MODEL = ThroughputModel(
    "cpu-core", POINT, (POINT,) * 4, frozenset({(2, 2)}), (SizeError(2, 2, ERRORS),)
)
RIGHT = StepObservation("cpu-core", 2, 2, 100, 0, step_seconds=1.2, sync_seconds=0.1, steps=50)
WRONG = replace(RIGHT, step_seconds=11.0)


class _Job:
    def __init__(self, store: Store | None = None) -> None:
        self.store = store or memory_store()
        if store is None:
            add_job(self.store)
        self.alarms = ModelAlarms(self.store)
        self.now_seconds = NOW
        self.record: JobRecord = self.store.jobs.find("digits")

    def check(self, measured: StepObservation, seconds: float, is_reported: bool = True) -> None:
        """Check every 10 s while the job reports this."""
        for _ in range(round(seconds / 10)):
            self.now_seconds += 10.0
            reported_seconds = self.now_seconds if is_reported else NOW
            record = replace(
                self.record,
                report=report(replicas=2, devices=2),
                reported_seconds=reported_seconds,
            )
            models = {"cpu-core": MODEL}
            self.alarms.check(record, [measured], models, [], self.now_seconds)

    def events(self) -> list[str]:
        return [event.kind for event in reversed(self.store.events.latest("digits"))]


def test_a_contradiction_of_two_minutes_raises_an_alarm_once() -> None:
    job = _Job()
    job.check(RIGHT, 60)
    job.check(WRONG, ALARM_SECONDS)
    assert job.alarms.raised == {}
    job.check(WRONG, 600)
    alarm = job.alarms.raised["digits"]
    assert alarm.code is AlarmCode.MODEL_CONTRADICTED
    assert alarm.since_seconds == NOW + 70
    words = r"measured 11 s a step, predicted 1\.2\d* s \(0\.\d+-1\.\d+\) at 2 x cpu-core: .*"
    assert re.fullmatch(words, alarm.text)
    assert alarm.least_step_seconds < alarm.predicted_step_seconds < alarm.most_step_seconds
    assert job.events() == [CONTRADICTED_EVENT]
    assert job.store.events.latest("digits")[0].text == alarm.text


def test_an_alarm_is_cleared_when_the_model_agrees_again() -> None:
    job = _Job()
    job.check(WRONG, 300)
    job.check(RIGHT, 10)
    assert job.alarms.raised == {}
    job.check(RIGHT, 300)
    job.check(WRONG, 300)
    assert job.events() == [CONTRADICTED_EVENT, AGREES_EVENT, CONTRADICTED_EVENT]


def test_shorter_contradictions_raise_none() -> None:
    job = _Job()
    for _ in range(5):
        job.check(WRONG, 110)
        job.check(RIGHT, 10)
    assert (job.alarms.raised, job.events()) == ({}, [])


@pytest.mark.parametrize(
    "measured",
    [replace(WRONG, is_settled=False), replace(WRONG, instances=4, devices=4)],
    ids=["of one report", "of another size"],
)
def test_step_times_that_do_not_count_raise_none(measured: StepObservation) -> None:
    job = _Job()
    job.check(measured, 600)
    assert job.alarms.raised == {}


def test_a_job_that_no_longer_reports_raises_none() -> None:
    job = _Job()
    job.check(WRONG, 600, is_reported=False)
    assert job.alarms.raised == {}


def test_a_restart_of_the_controller_writes_no_second_event() -> None:
    before = _Job()
    before.check(WRONG, 300)
    after = _Job(before.store)
    after.check(WRONG, 300)
    assert "digits" in after.alarms.raised
    assert after.events() == [CONTRADICTED_EVENT]
    after.check(RIGHT, 10)
    assert after.events() == [CONTRADICTED_EVENT, AGREES_EVENT]


def test_alarms_of_ended_jobs_are_dropped() -> None:
    job = _Job()
    job.check(WRONG, 300)
    job.alarms.forget([])
    assert job.alarms.raised == {}


def test_the_range_has_nine_of_ten_predictions_in_it() -> None:
    predicted = predicted_step(MODEL, RIGHT)
    assert predicted.seconds == pytest.approx(1.2, rel=0.02)
    assert predicted.least_seconds == pytest.approx(0.88, abs=0.03)
    assert predicted.most_seconds == pytest.approx(1.65, abs=0.05)
    surer = replace(MODEL, size_errors=(SizeError(2, 2, (0.0,) * 4),))
    assert predicted_step(surer, RIGHT).most_seconds < predicted.most_seconds


def _train(world: World, job: str, batch: int, step_seconds: float, seconds: float) -> None:
    """Report steps of one device batch every 10 s."""
    (held,) = world.training(job)
    origin = ReportOrigin(held.id, 0, 0.0)
    for _ in range(round(seconds / 10)):
        world.tick(1, seconds=10.0)
        steps = round(10.0 / step_seconds)
        measured = StepObservation("core", 1, 1, batch, 0, step_seconds, 0.0, steps)
        done = int(world.clock.now())
        told = report(done, observations=(measured,), pauses=(), replicas=1, devices=1)
        assert world.store.reports.add(job, told, origin, world.clock.now())


def test_a_batch_that_no_fit_explains_is_an_alarm_in_the_controllers_status(
    world: World,
) -> None:
    """The size's other batches agree with the model, so the slow one is thrown away."""
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    for batch in (8, 16, 32, 64, 128):
        _train(world, job, batch, 0.1 + 0.01 * batch, 30)
    assert world.controller.status.alarms == {}
    _train(world, job, 48, 6.0, 200)
    alarm = world.controller.status.alarms[job]
    assert alarm.measured_step_seconds == pytest.approx(6.0)
    assert alarm.most_step_seconds < 3.0
    assert "at 1 x small" in alarm.text
    _train(world, job, 64, 0.74, 30)
    assert world.controller.status.alarms == {}
    kinds = [event.kind for event in reversed(world.store.events.latest(job))]
    assert [kind for kind in kinds if "model" in kind] == [CONTRADICTED_EVENT, AGREES_EVENT]
