"""Speeds of trials by the steps that their jobs have timed.

A trial's job times its steps from the first on; its study hears of progress only after an epoch.
How many examples make one unit of progress is known from siblings that have reported both on one
size; where these agree, it holds for all. A trial that times no steps and reports nothing for long
is slow, too.
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

# Siblings that must agree on the examples of a unit of progress, and how closely.
_WITNESSES = 2
_AGREEMENT = 0.1

# (steps, seconds) that a trial has timed on each size.
_Timed = Mapping[Allocation, tuple[float, float]]


class StepSpeeds:
    """Speeds of a study's trials by their timed steps."""

    def __init__(self, study: StudySnapshot, offers: Sequence[Offer]) -> None:
        self._timed = {job: _timed(steps, offers) for job, steps in study.steps.items()}
        self._steps = study.steps

    def of_alive(
        self, records: Sequence[TrialRecord], jobs: Sequence[JobSnapshot]
    ) -> tuple[tuple[TrialRecord, ...], float | None]:
        """Return the records with speeds by steps, and the work of an example; None: not known.

        The time between two reports may hold more than training: a pause, a change, a start. The
        work of a step is not known of a job whose batch changes.
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
        timed = (
            self._with_steps(record, work * batch if batch else None)
            for record, batch in zip(records, batches, strict=True)
        )
        return tuple(timed), work

    def of_ended(self, records: Sequence[TrialRecord]) -> list[TrialRecord]:
        """Return the records of ended trials with speeds by steps, each by its own reports."""
        return [self._with_steps(record, self._work_of_a_step(record)) for record in records]

    def batches(self, jobs: Sequence[JobSnapshot]) -> dict[str, float]:
        """Return examples in a step of each trial, by its job; none where its batch changes.

        Args:
            jobs: jobs that have not ended; the batch of others is that of their steps.
        """
        batches = {}
        for job, steps in self._steps.items():
            sizes = {step.devices * step.device_batch * (step.accumulation + 1) for step in steps}
            if len(sizes) == 1:
                batches[job] = float(sizes.pop())
        for snapshot in jobs:
            if snapshot.batch.adaptive:
                batches.pop(snapshot.id, None)
            else:
                batches[snapshot.id] = float(snapshot.batch.initial)
        return batches

    def step_seconds(self) -> dict[str, float]:
        """Return the longest mean step of each trial that has timed some, by its job."""
        return {
            job: max(seconds / steps for steps, seconds in timed.values())
            for job, timed in self._timed.items()
            if timed
        }

    def _work_of_a_step(self, record: TrialRecord) -> float | None:
        """Return the progress of a step, by the latest size with both reports and timed steps."""
        timed = self._timed.get(record.stands.job, {})
        for speed in record.speeds:
            if speed.size in timed:
                steps, seconds = timed[speed.size]
                return speed.work / speed.seconds * seconds / steps
        return None

    def _with_steps(self, record: TrialRecord, work: float | None) -> TrialRecord:
        """Return the record with speeds by its steps, each `work` of progress."""
        timed = self._timed.get(record.stands.job, {})
        if work is None or not timed:
            return record
        speeds = tuple(
            TrialSpeed(size, steps * work, took) for size, (steps, took) in timed.items()
        )
        reported = tuple(speed for speed in record.speeds if speed.size not in timed)
        return replace(record, speeds=speeds + reported)


def no_faster_than(draws: FloatArray, most: float) -> FloatArray:
    """Return as many draws (K,) from those that are at most `most`; all `most` if none is."""
    slow = np.sort(draws[draws <= most])
    if not len(slow):
        return np.full(len(draws), most)
    rank = np.argsort(np.argsort(draws, kind="stable"), kind="stable")
    slower: FloatArray = slow[rank * len(slow) // len(draws)]
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
    """Return the work of an example; None if too few trials tell, or they disagree."""
    if len(shares) < _WITNESSES:
        return None
    usual = float(np.median(shares))
    spread = float(np.median(np.abs(np.array(shares) - usual)))
    return usual if spread <= _AGREEMENT * usual else None
