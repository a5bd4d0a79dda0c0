"""Speeds of a study's trials on the sizes that they may hold, from its measurements."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import ThreadpoolController

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer
from autoscaler.domain.terms import TrialRecord
from autoscaler.economics.studies.supply import StudySupply
from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.sibling_speeds import (
    Siblings,
    SpeedMeasurements,
    StudySizes,
    hyper_parameter_features,
    sibling_speeds,
)
from autoscaler.goodput.throughput import FloatArray

DRAWS = 24
# Assumed length of a trial before any trial of its study was measured: an hour, or a quarter of
# the time left to the deadline. A guess never rules out the trial whose measurement replaces it.
_UNMEASURED_SECONDS = 3600.0
_UNMEASURED_SHARE_OF_DEADLINE = 0.25
_LEAST_UNMEASURED_SECONDS = 1.0
# Ended trials beyond this number take longer to learn from than they are worth.
_MOST_SIBLINGS = 120
# Several threads take longer than one for matrices of a few hundred rows: they spin.
_THREADS = ThreadpoolController()


@dataclass(frozen=True, slots=True, eq=False)
class TrialSpeeds:
    """Units of work a second of N trials on A sizes in K equally likely draws.

    Attributes:
        goodput: speeds to plan with, (K, N, A): the median where a trial was not measured.
        unsettled: speeds as far as they are known now, (K, N, A).
        fresh: speeds of a trial that has not begun, to plan with, (A,).
        unsettled_fresh: speeds of a trial that has not begun, (K, A).
        is_measured: whether a trial's own speed was measured, (N,).
    """

    goodput: FloatArray
    unsettled: FloatArray
    fresh: FloatArray
    unsettled_fresh: FloatArray
    is_measured: BoolArray


def unmeasured_trial_seconds(deadline_seconds: float | None) -> float:
    """Return the length assumed of a trial of a study in which nothing was measured.

    Args:
        deadline_seconds: from now; None, or in the past: no deadline decides.
    """
    if deadline_seconds is None or deadline_seconds <= 0:
        return _UNMEASURED_SECONDS
    share_seconds = _UNMEASURED_SHARE_OF_DEADLINE * deadline_seconds
    return min(_UNMEASURED_SECONDS, max(share_seconds, _LEAST_UNMEASURED_SECONDS))


def median_where_unmeasured(goodput: FloatArray, is_measured: BoolArray) -> FloatArray:
    """Return draws (K, N, A) with the median in all draws of trials that were not measured.

    A trial's own speed will be known as soon as it trains, long before instances ordered on a
    guess of it are ready. So nothing is bought for the slow draws of such a trial.
    """
    median = np.median(goodput, axis=0, keepdims=True)
    draws: FloatArray = np.where(is_measured[:, None], goodput, median)
    return draws


def trial_speeds(
    trials: Sequence[TrialRecord],
    ended: Sequence[TrialRecord],
    supply: StudySupply,
    full_work: float,
    batches: Mapping[str, float],
    unmeasured_seconds: float = _UNMEASURED_SECONDS,
) -> TrialSpeeds:
    """Return the speeds of the trials that have not ended, learnt also from those that have.

    Args:
        trials: N trials.
        ended: siblings that have ended, the latest last.
        supply: sizes that trials may hold.
        full_work: work of a trial that is never pruned.
        batches: examples in a step of each trial, by its job; unknown where left out.
        unmeasured_seconds: length of such a trial on one device, where no trial was measured.
    """
    measured = [record for record in ended if record.speeds][-_MOST_SIBLINGS:]
    records = [*trials, None, *measured]
    columns = _Columns(supply, records)
    is_measured = np.array([columns.has_speed(record) for record in trials], dtype=np.bool_)
    jobs = [None if record is None else record.stands.job for record in records]
    siblings = Siblings(
        _features(records),
        np.array([math.log(batches.get(job, math.nan)) if job else math.nan for job in jobs]),
        [zlib.crc32(job.encode()) if job else 0 for job in jobs],
    )
    with _THREADS.limit(limits=1):
        draws = sibling_speeds(
            siblings,
            StudySizes(columns.devices, columns.kinds),
            columns.measurements(records),
            math.log(full_work / unmeasured_seconds),
            DRAWS,
        )[:, : len(trials) + 1, columns.of_size]
    planned = median_where_unmeasured(draws, np.append(is_measured, False))
    return TrialSpeeds(planned[:, :-1], draws[:, :-1], planned[0, -1], draws[:, -1], is_measured)


class _Columns:
    """Sizes by kind and number of devices: trials are as fast on all sizes of one column."""

    def __init__(self, supply: StudySupply, records: Sequence[TrialRecord | None]) -> None:
        self._offers: Mapping[str, Offer] = {offer.id: offer for offer in supply.offers}
        measured = [
            speed.size for record in records if record is not None for speed in record.speeds
        ]
        keys = {key for size in (*supply.sizes, *measured) if (key := self._key(size)) is not None}
        order = sorted(keys)
        kinds = sorted({kind for kind, _ in order})
        self._place = {key: place for place, key in enumerate(order)}
        self.devices = np.array([float(devices) for _, devices in order])
        self.kinds: IntArray = np.array([kinds.index(kind) for kind, _ in order], dtype=np.int64)
        self.of_size: IntArray = np.array(
            [
                self._place[self._offers[size.offer].device_kind, size.devices]
                for size in supply.sizes
            ],
            dtype=np.int64,
        )

    def _key(self, size: Allocation) -> tuple[str, int] | None:
        offer = self._offers.get(size.offer)
        return None if offer is None else (offer.device_kind, size.devices)

    def has_speed(self, record: TrialRecord) -> bool:
        """Return whether a trial was measured on an offer that is still there."""
        return any(self._key(speed.size) is not None for speed in record.speeds)

    def measurements(self, records: Sequence[TrialRecord | None]) -> SpeedMeasurements:
        """Return the measured speeds, each with the index of its trial."""
        rows: list[tuple[int, int, float]] = []
        for trial, record in enumerate(records):
            for speed in () if record is None else record.speeds:
                key = self._key(speed.size)
                if key is not None:
                    rows.append((trial, self._place[key], math.log(speed.work / speed.seconds)))
        return SpeedMeasurements(
            np.array([trial for trial, _, _ in rows], dtype=np.int64),
            np.array([column for _, column, _ in rows], dtype=np.int64),
            np.array([rate for _, _, rate in rows], dtype=np.float64),
        )


def _features(records: Sequence[TrialRecord | None]) -> FloatArray:
    """Return the numeric hyper-parameters of trials, (N, H); the mean where one is unknown."""
    values = [{} if record is None else record.stands.features for record in records]
    names = sorted({name for features in values for name in features})
    table = [[features.get(name, math.nan) for name in names] for features in values]
    return hyper_parameter_features(np.array(table).reshape(len(records), len(names)))
