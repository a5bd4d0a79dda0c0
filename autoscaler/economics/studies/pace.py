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
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.domain.terms import TrialRecord, TrialSpeed
from autoscaler.goodput.throughput import FloatArray

# So many siblings must have gone through as many examples for a unit, but for so much.
_WITNESSES = 2
_AGREEMENT = 0.1

# Of a trial: sizes -> (examples, seconds) that its steps took there.
_Timed = Mapping[Allocation, tuple[float, float]]


def with_pace(
    records: Sequence[TrialRecord], jobs: Sequence[JobSnapshot], offers: Sequence[Offer]
) -> tuple[TrialRecord, ...]:
    """The records with speeds from steps, wherever a job has timed some.

    Between two reports there may be more than training: a pause, a change, a start.
    """
    timed = [_timed(job, offers) for job in jobs]
    unit = _examples_per_unit(records, timed)
    if unit is None:
        return tuple(records)
    return tuple(_paced(one, own, unit) for one, own in zip(records, timed, strict=True))


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


def _timed(job: JobSnapshot, offers: Sequence[Offer]) -> _Timed:
    """Of one whose batch changes it is not known what a step is worth."""
    if job.batch.adaptive:
        return {}
    timed: dict[Allocation, tuple[float, float]] = {}
    for step in job.steps:
        for offer in offers:
            if offer.device_kind != step.device_kind or step.devices % step.instances:
                continue
            size = Allocation(offer.id, step.instances, step.devices // step.instances)
            examples, seconds = timed.get(size, (0.0, 0.0))
            examples += step.steps * job.batch.initial
            timed[size] = examples, seconds + step.steps * step.step_seconds
    return timed


def _examples_per_unit(records: Sequence[TrialRecord], timed: Sequence[_Timed]) -> float | None:
    """Examples in a unit of progress; None where nobody knows, or it is not the same for all."""
    units = [
        examples / seconds * speed.seconds / speed.work
        for record, own in zip(records, timed, strict=True)
        for speed in record.speeds[:1]
        if speed.size in own
        for examples, seconds in (own[speed.size],)
    ]
    if len(units) < _WITNESSES:
        return None
    unit = float(np.median(units))
    return unit if float(np.median(np.abs(np.array(units) - unit))) <= _AGREEMENT * unit else None


def _paced(record: TrialRecord, timed: _Timed, unit: float) -> TrialRecord:
    found = tuple(
        TrialSpeed(size, examples / unit, seconds)
        for size, (examples, seconds) in timed.items()
    )
    others = tuple(speed for speed in record.speeds if speed.size not in timed)
    return replace(record, speeds=found + others) if found else record
