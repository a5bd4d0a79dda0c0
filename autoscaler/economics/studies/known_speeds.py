"""How fast the trials of a study are, from what was measured of them and of those that ended."""

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
from autoscaler.economics.studies.rung import StudySupply, settled
from autoscaler.economics.studies.siblings import (
    Siblings,
    SpeedMeasurements,
    StudySizes,
    hyper_parameter_features,
    sibling_speeds,
)
from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

DRAWS = 24
# Assumed length of a trial before any trial of its study was measured: an hour, or a quarter of
# the time left to the deadline. A guess never rules out the trial whose measurement replaces it.
_UNMEASURED_SECONDS = 3600.0
_UNMEASURED_SHARE_OF_DEADLINE = 0.25
_LEAST_UNMEASURED_SECONDS = 1.0
# What more siblings than the latest so many could teach takes longer to learn than it is worth.
_MOST_SIBLINGS = 120
# Matrices of a few hundred rows take longer where several threads share them out: those that are
# done spin until the others are.
_THREADS = ThreadpoolController()


@dataclass(frozen=True, slots=True, eq=False)
class TrialSpeeds:
    """Units of work a second of N trials on A sizes in K equally likely draws.

    Attributes:
        goodput: (K, N, A); of one that nobody measured its median, in all draws.
        unsettled: the same, as far as is known now: the draws of those, too.
        unsettled_fresh: of a trial of which nothing is known, (K, A).
        fresh: of a trial of which nothing is known, (A,).
        is_measured: whose own speed was measured, (N,).
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


def trial_speeds(
    trials: Sequence[TrialRecord],
    ended: Sequence[TrialRecord],
    supply: StudySupply,
    full_work: float,
    batches: Mapping[str, float],
    unmeasured_seconds: float = _UNMEASURED_SECONDS,
) -> TrialSpeeds:
    """Return the speeds of the trials that are alive, learnt also from those that have ended.

    Args:
        trials: N trials.
        ended: siblings that have ended, the latest last.
        supply: sizes that trials may hold.
        full_work: work of a trial that is never pruned.
        batches: examples in a step of each trial, by its job; trials without one are left out.
        unmeasured_seconds: length of such a trial on one device, where no trial was measured.
    """
    teachers = [one for one in ended if one.speeds][-_MOST_SIBLINGS:]
    every = [*trials, None, *teachers]
    offers = {offer.id: offer for offer in supply.offers}
    table = _Columns(supply.sizes, every, offers)
    own = np.array([table.teaches(one) for one in trials], dtype=np.bool_)
    siblings = Siblings(
        _features(every),
        np.array([math.nan if one is None else _log_batch(one, batches) for one in every]),
        [0 if one is None else zlib.crc32(one.stands.job.encode()) for one in every],
    )
    unmeasured = math.log(full_work / unmeasured_seconds)
    with _THREADS.limit(limits=1):
        draws = sibling_speeds(
            siblings,
            StudySizes(table.devices, table.kinds),
            table.measurements(every),
            unmeasured,
            DRAWS,
        )[:, : len(trials) + 1, table.of_size]
    known = settled(draws, np.append(own, False))
    return TrialSpeeds(known[:, :-1], draws[:, :-1], known[0, -1], draws[:, -1], own)


class _Columns:
    """Sizes that differ in kind or number of devices: those of one column are equally fast."""

    def __init__(
        self,
        sizes: Sequence[Allocation],
        records: Sequence[TrialRecord | None],
        offers: Mapping[str, Offer],
    ) -> None:
        self._offers = offers
        measured = [speed.size for one in records if one is not None for speed in one.speeds]
        keys = {key for size in (*sizes, *measured) if (key := self._key(size)) is not None}
        order = sorted(keys)
        kinds = sorted({kind for kind, _ in order})
        self._place = {key: place for place, key in enumerate(order)}
        self.devices = np.array([float(devices) for _, devices in order])
        self.kinds: IntArray = np.array([kinds.index(kind) for kind, _ in order], dtype=np.int64)
        self.of_size: IntArray = np.array(
            [self._place[offers[one.offer].device_kind, one.devices] for one in sizes],
            dtype=np.int64,
        )

    def _key(self, size: Allocation) -> tuple[str, int] | None:
        offer = self._offers.get(size.offer)
        return None if offer is None else (offer.device_kind, size.devices)

    def teaches(self, record: TrialRecord) -> bool:
        """Whether a speed of it was measured on what is still offered."""
        return any(self._key(speed.size) is not None for speed in record.speeds)

    def measurements(self, records: Sequence[TrialRecord | None]) -> SpeedMeasurements:
        """What was measured, each by the place of its trial."""
        found: list[tuple[int, int, float]] = []
        for trial, record in enumerate(records):
            for speed in () if record is None else record.speeds:
                key = self._key(speed.size)
                if key is not None:
                    found.append((trial, self._place[key], math.log(speed.work / speed.seconds)))
        return SpeedMeasurements(
            np.array([trial for trial, _, _ in found], dtype=np.int64),
            np.array([column for _, column, _ in found], dtype=np.int64),
            np.array([rate for _, _, rate in found], dtype=np.float64),
        )


def _log_batch(record: TrialRecord, batches: Mapping[str, float]) -> float:
    return math.log(batches.get(record.stands.job, math.nan))


def _features(records: Sequence[TrialRecord | None]) -> FloatArray:
    """Numeric hyper-parameters of all, (N, H); of one that is not known the mean."""
    own = [{} if one is None else one.stands.features for one in records]
    names = sorted({name for features in own for name in features})
    values = [[features.get(name, math.nan) for name in names] for features in own]
    return hyper_parameter_features(np.array(values).reshape(len(records), len(names)))
