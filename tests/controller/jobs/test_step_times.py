from __future__ import annotations

from dataclasses import replace

from autoscaler.controller.jobs.step_times import KnownStepTimes
from autoscaler.domain.job import JobSpec
from autoscaler.domain.report import StepObservation
from autoscaler.store.memory.store import memory_store

_LONG = StepObservation("t4", 1, 1, 32, 0, step_seconds=0.1, sync_seconds=0.0, steps=100)
_SHORT = replace(_LONG, device_batch=64, steps=1)


def test_they_are_the_same_until_more_is_measured() -> None:
    store = memory_store()
    job = store.jobs.add(JobSpec(name="a", command=("train",)), 0.0)
    known = KnownStepTimes(store)
    assert known.of(job, None).all == ()
    store.measurements.add_observations(job.id, (_LONG, _SHORT), 1.0)
    first = known.of(job, None)
    assert first.own == (replace(_LONG, is_settled=False),)
    assert known.of(job, None) is first
    store.measurements.add_observations(job.id, (replace(_SHORT, steps=100),), 2.0)
    assert {each.device_batch for each in known.of(job, None).own} == {32, 64}


def test_jobs_that_are_gone_are_forgotten() -> None:
    store = memory_store()
    job = store.jobs.add(JobSpec(name="a", command=("train",)), 0.0)
    known = KnownStepTimes(store)
    first = known.of(job, None)
    known.forget([])
    assert known.of(job, None) is not first
