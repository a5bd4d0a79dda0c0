from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.controller.jobs.models import Models
from autoscaler.controller.jobs.step_times import KnownStepTimes
from autoscaler.domain.errors import StoreError
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.fit import fit
from autoscaler.goodput.prediction import log_errors
from autoscaler.store.memory.store import memory_store
from autoscaler.store.store import Store
from tests.conformance.store_examples import far_offer
from tests.controller.world import World

OFFER = replace(far_offer(), device_kind="t4")
HERE = StepObservation("t4", 1, 1, 32, 0, step_seconds=0.1, sync_seconds=0.0, steps=100)
CLIFF = StepObservation("t4", 4, 4, 32, 0, step_seconds=1.0, sync_seconds=0.9, steps=10)


class _Job:
    """A job whose step times are reported ten seconds apart."""

    def __init__(self, store: Store | None = None, record: JobRecord | None = None) -> None:
        self.store: Store = store or memory_store()
        self.record: JobRecord = record or self.store.jobs.add(JobSpec("a", ("train",)), 0.0)
        self.now_seconds = 0.0
        self._known = KnownStepTimes(self.store)
        self.models = Models(self.store)

    def model_after(self, *reports: StepObservation) -> ThroughputModel:
        for report in reports:
            self.now_seconds += 10.0
            self.store.measurements.add_observations(self.record.id, [report], self.now_seconds)
        step_times = self._known.of(self.record, None)
        return self.models.of(self.record, step_times, [OFFER], self.now_seconds)["t4"]


def test_a_size_that_is_far_slower_is_measured_with_its_second_report() -> None:
    job = _Job()
    assert job.model_after(HERE, HERE).measured == {(1, 1)}
    assert job.model_after(CLIFF).measured == {(1, 1)}
    model = job.model_after(CLIFF)
    assert model.measured == {(1, 1), (4, 4)}
    assert abs(log_errors(model, [CLIFF])[0]) < 0.1


def test_one_slow_first_report_leaves_no_trace() -> None:
    job, plain = _Job(), _Job()
    good = replace(CLIFF, step_seconds=0.15, sync_seconds=0.05, steps=67)
    expected = plain.model_after(HERE, HERE, good, good)
    for report in (HERE, HERE, CLIFF, good):
        job.model_after(report)
    actual = job.model_after(good)
    assert log_errors(actual, [good]) == pytest.approx(log_errors(expected, [good]), abs=0.01)


def test_settling_a_speed_is_no_news() -> None:
    job = _Job()
    first = job.model_after(HERE)
    assert job.model_after(HERE) is first


def test_a_size_that_became_slower_makes_another_model_at_once() -> None:
    job = _Job()
    other = replace(HERE, device_batch=64, step_seconds=0.2, steps=50)
    job.model_after(HERE, HERE, other, other)
    slow = replace(HERE, step_seconds=0.3, steps=40)
    model = job.model_after(slow, slow)
    assert abs(log_errors(model, [slow])[0]) < 0.1


def test_a_tick_without_new_measurements_fits_nothing_from_a_database(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, template=template)
    job = world.submit()
    here = replace(HERE, device_kind="core")
    cliff = replace(CLIFF, device_kind="core", step_seconds=4.0, sync_seconds=3.9)
    for report in (here, here, cliff):
        world.clock.advance(10.0)
        world.store.measurements.add_observations(job, [report], world.clock.now())
    fitted: list[object] = []
    read: list[str] = []

    def counted_fit(*inputs: Any) -> ThroughputModel:
        fitted.append(inputs)
        return fit(*inputs)

    def counted_read(name: str) -> tuple[StepObservation, ...]:
        read.append(name)
        return observations(name)

    observations = world.store.measurements.observations
    monkeypatch.setattr("autoscaler.controller.jobs.models.fit", counted_fit)
    monkeypatch.setattr(world.store.measurements, "observations", counted_read)
    world.tick()
    counts = len(fitted), len(read)
    assert min(counts) > 0
    world.tick(2)
    assert (len(fitted), len(read)) == counts
    world.clock.advance(10.0)
    world.store.measurements.add_observations(job, [cliff], world.clock.now())
    world.tick()
    assert len(fitted) > counts[0]
    assert len(read) > counts[1]


def test_models_that_can_not_be_stored_affect_no_other_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = memory_store()
    names = ("a", "broken", "c")
    jobs = [store.jobs.add(JobSpec(name=name, command=("train",)), 0.0) for name in names]
    known, models = KnownStepTimes(store), Models(store)
    store_models = store.measurements.save_all_models

    def save(of_jobs: Mapping[str, Mapping[str, ThroughputModel]]) -> None:
        if "broken" in of_jobs:
            raise ValueError("can't be written")
        store_models(of_jobs)

    monkeypatch.setattr(store.measurements, "save_all_models", save)
    fitted = [models.of(job, known.of(job, None), [OFFER], 0.0) for job in jobs]
    models.save()
    assert [store.measurements.models(name) for name in names] == [fitted[0], {}, fitted[2]]


def test_models_are_stored_once_the_store_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = _Job()

    def fail(of_jobs: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(job.store.measurements, "save_all_models", fail)
        model = job.model_after(HERE)
        with pytest.raises(StoreError):
            job.models.save()
    assert job.store.measurements.models("a") == {}
    job.models.save()
    assert job.store.measurements.models("a") == {"t4": model}


def _restarted(job: _Job) -> _Job:
    """Return the job under a controller that has just started over the same store."""
    later = _Job(job.store, job.record)
    later.now_seconds = job.now_seconds
    later.models.restore([job.record.id])
    return later


def test_a_controller_that_starts_goes_on_with_stored_models() -> None:
    job = _Job()
    model = job.model_after(HERE, HERE)
    job.models.save()
    later = _restarted(job)
    assert later.model_after() is model
    later.models.save()
    nearly = replace(HERE, step_seconds=0.101)
    assert later.model_after(nearly) is model


@pytest.mark.parametrize(
    "news",
    [
        [replace(HERE, step_seconds=0.2)] * 6,  # another speed
        [replace(CLIFF, step_seconds=0.15, sync_seconds=0.05)] * 2,  # another size
        [replace(HERE, device_kind="a100")] * 2,  # another kind
    ],
)
def test_stored_models_that_tell_less_than_the_step_times_are_fitted_again(
    news: list[StepObservation],
) -> None:
    job = _Job()
    model = job.model_after(HERE, HERE)
    job.models.save()
    job.store.measurements.add_observations(job.record.id, news, 100.0)
    job.now_seconds = 100.0
    fitted = _Job(job.store, job.record)
    fitted.now_seconds = 100.0
    expected = fitted.model_after()
    actual = _restarted(job).model_after()
    assert actual == expected
    assert actual != model


def test_stored_models_that_can_not_be_read_are_fitted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = _Job()
    model = job.model_after(HERE, HERE)
    job.models.save()

    def fail(jobs: object) -> None:
        raise ValueError("not a model")

    monkeypatch.setattr(job.store.measurements, "models_of", fail)
    later = _restarted(job).model_after()
    assert later is not model
    assert later == model
