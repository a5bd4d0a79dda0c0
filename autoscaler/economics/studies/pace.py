"""How fast trials are that have not reported yet: by the steps that their jobs have timed.

A trial's job times its steps from the first on, its study hears of progress only after an epoch,
or what does as well. How many examples one unit of progress is, is seen of siblings that have done
both on one size; where they agree, it is so for all. One that times no steps and says nothing for
long is slow, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import JobSnapshot, StudySnapshot
from autoscaler.domain.terms import TrialRecord, TrialSpeed
from autoscaler.goodput.throughput import FloatArray

# So many siblings must have gone through as many examples for a unit, but for so much.
_WITNESSES = 2
_AGREEMENT = 0.1

# Of a trial: sizes -> (steps, seconds) that it has timed there.
_Timed = Mapping[Allocation, tuple[float, float]]


class Pace:
    """What the steps of a study's trials tell of their speeds."""

    def __init__(self, study: StudySnapshot, offers: Sequence[Offer]) -> None:
        self._timed = {job: _timed(steps, offers) for job, steps in study.steps.items()}
        self._steps = study.steps

    def of_those_alive(
        self, records: Sequence[TrialRecord], jobs: Sequence[JobSnapshot]
    ) -> tuple[tuple[TrialRecord, ...], float | None]:
        """The records with speeds from steps, wherever a job has timed some; work of an example.

        Between two reports there may be more than training: a pause, a change, a start. Of a job
        whose batch changes it is not known what a step is worth.
        """
        batches = [0 if job.batch.adaptive else job.batch.initial for job in jobs]
        shares = [
            share / batch
            for record, batch in zip(records, batches, strict=True)
            if batch and (share := self._work_of_a_step(record)) is not None
        ]
        work = _agreed(shares)
        if work is None:
            return tuple(records), None
        paced = (
            self._paced(record, work * batch if batch else None)
            for record, batch in zip(records, batches, strict=True)
        )
        return tuple(paced), work

    def of_those_ended(self, records: Sequence[TrialRecord]) -> list[TrialRecord]:
        """The same by what each has reported itself: where it took no pause that is all of it."""
        return [self._paced(record, self._work_of_a_step(record)) for record in records]

    def batches(self, jobs: Sequence[JobSnapshot]) -> dict[str, float]:
        """Return examples in a step of each trial, by its job; one whose batch changes has none.

        Args:
            jobs: those of the trials that are alive. The batch of others is that of their steps.
        """
        found = {}
        for job, steps in self._steps.items():
            batch = {step.devices * step.device_batch * (step.accumulation + 1) for step in steps}
            if len(batch) == 1:
                found[job] = float(batch.pop())
        for one in jobs:
            if one.batch.adaptive:
                found.pop(one.id, None)
            else:
                found[one.id] = float(one.batch.initial)
        return found

    def step_seconds(self) -> dict[str, float]:
        """The longest steps of each trial that has timed some."""
        return {
            job: max(seconds / steps for steps, seconds in timed.values())
            for job, timed in self._timed.items()
            if timed
        }

    def _work_of_a_step(self, record: TrialRecord) -> float | None:
        """By the latest size on which it has reported progress and timed steps."""
        timed = self._timed.get(record.stands.job, {})
        for speed in record.speeds:
            if speed.size in timed:
                steps, seconds = timed[speed.size]
                return speed.work / speed.seconds * seconds / steps
        return None

    def _paced(self, record: TrialRecord, work: float | None) -> TrialRecord:
        timed = self._timed.get(record.stands.job, {})
        if work is None or not timed:
            return record
        found = tuple(
            TrialSpeed(size, steps * work, took) for size, (steps, took) in timed.items()
        )
        others = tuple(speed for speed in record.speeds if speed.size not in timed)
        return replace(record, speeds=found + others)


def no_faster_than(draws: FloatArray, most: float) -> FloatArray:
    """Of the rates in equally likely draws, (K,), those that are at most `most`, as many draws.

    Where none is, all are just that.
    """
    left = np.sort(draws[draws <= most])
    if not len(left):
        return np.full(len(draws), most)
    order = np.argsort(np.argsort(draws, kind="stable"), kind="stable")
    slower: FloatArray = left[order * len(left) // len(draws)]
    return slower


def _timed(steps: Sequence[StepObservation], offers: Sequence[Offer]) -> _Timed:
    timed: dict[Allocation, tuple[float, float]] = {}
    present = [step for step in steps if step.era == 0]
    for step in present:
        for offer in offers:
            if offer.device_kind != step.device_kind or step.devices % step.instances:
                continue
            size = Allocation(offer.id, step.instances, step.devices // step.instances)
            count, seconds = timed.get(size, (0.0, 0.0))
            timed[size] = count + step.steps, seconds + step.steps * step.step_seconds
    return timed


def _agreed(shares: Sequence[float]) -> float | None:
    """Work of an example; None where too few know, or it is not the same for all."""
    if len(shares) < _WITNESSES:
        return None
    usual = float(np.median(shares))
    spread = float(np.median(np.abs(np.array(shares) - usual)))
    return usual if spread <= _AGREEMENT * usual else None
