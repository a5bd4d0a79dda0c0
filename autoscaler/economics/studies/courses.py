"""What each size would take and cost a trial of the rung, changing to it included.

Old instances work on while new ones boot, so growing loses only the pause; what it costs is the
new instances' boot. Seconds paid for already (a billing minimum) cost nothing once more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.studies.rung import StudySupply, TrialState
from autoscaler.goodput.throughput import FloatArray

# What stands for never: finite, so that sums and differences of it are numbers.
NEVER = 1e15


@dataclass(frozen=True, slots=True, eq=False)
class Courses:
    """Of N trials on A sizes: seconds to the barrier in each draw, and what they mean.

    Attributes:
        seconds: from now, changing included, (K, N, A). Of one that waits, from a ready instance.
        mean: over the draws, (N, A).
        cautious: what they pass only in a few draws, (N, A).
        usd: mean cost, (N, A); of one that waits, of its time alone.
    """

    seconds: FloatArray
    mean: FloatArray
    cautious: FloatArray
    usd: FloatArray


def running_courses(
    trials: tuple[TrialState, ...],
    supply: StudySupply,
    caution: float,
    freed: FloatArray | None = None,
) -> Courses:
    """Trials that hold something.

    `freed`: what they grow by is ready, need not boot, and is paid for already for so many
    seconds, by size, (A,); None: it is new.
    """
    seconds, usd = [], []
    for trial in trials:
        took = _seconds(trial, supply, freed is not None)
        seconds.append(took)
        usd.append(_usd(trial, supply, took, freed).mean(axis=0))
    return _stacked(seconds, usd, supply, caution)


def waiting_courses(
    trials: tuple[TrialState, ...], supply: StudySupply, caution: float
) -> Courses:
    """Trials that hold nothing: from the first step on an instance that is ready."""
    seconds = [work_seconds(trial, supply) for trial in trials]
    usd = [took.mean(axis=0) * supply.usd_per_second for took in seconds]
    return _stacked(seconds, usd, supply, caution)


def work_seconds(trial: TrialState, supply: StudySupply) -> FloatArray:
    """Seconds of what is left on every size without any change, (K, A)."""
    rate = supply.with_reclaims(trial.goodput)
    took: FloatArray = np.where(rate > 0, trial.to_decision / np.maximum(rate, 1e-300), NEVER)
    return np.minimum(took, NEVER)


def _stacked(
    seconds: list[FloatArray], usd: list[FloatArray], supply: StudySupply, caution: float
) -> Courses:
    if not seconds:
        none = np.zeros((0, len(supply.sizes)))
        return Courses(np.zeros((1, *none.shape)), none, none, none)
    every = np.stack(seconds, axis=1)
    cautious = np.quantile(every, caution, axis=0, method="higher")
    return Courses(every, every.mean(axis=0), cautious, np.stack(usd))


def _seconds(trial: TrialState, supply: StudySupply, freed: bool) -> FloatArray:
    """Seconds to the barrier on every size, (K, A)."""
    held = _held(trial)
    left = work_seconds(trial, supply)
    stays = trial.ready_seconds + left[:, [held]]
    waits = np.zeros_like(left[0]) if freed else supply.boot_seconds
    is_less = _kept(held, supply) == supply.instances
    waits = np.where(is_less, 0.0, waits)
    begins = np.maximum(waits, trial.ready_seconds)
    done = (begins - trial.ready_seconds) / left[:, [held]]
    changes = begins + supply.switching.pause_seconds + np.maximum(1.0 - done, 0.0) * left
    seconds: FloatArray = np.where(done < 1.0, np.minimum(changes, NEVER), stays)
    seconds[:, held] = stays[:, 0]
    return seconds


def _usd(
    trial: TrialState, supply: StudySupply, seconds: FloatArray, freed: FloatArray | None
) -> FloatArray:
    """What every size costs from now to the barrier, (K, A)."""
    held = _held(trial)
    kept = _kept(held, supply)
    usd = seconds * supply.usd_per_second
    usd -= kept * supply.unit_usd_per_second * np.minimum(seconds, trial.paid_seconds)
    added = (supply.instances - kept) * supply.unit_usd_per_second
    if freed is None:
        usd += added * np.maximum(supply.minimum_billed_seconds - seconds, 0.0)
    else:
        usd -= added * np.minimum(seconds, freed)
    moves = supply.offer_of != supply.offer_of[held]
    waits = supply.boot_seconds if freed is None else np.zeros(len(moves))
    usd += moves * waits * supply.usd_per_second[held]
    return usd


def _kept(held: int, supply: StudySupply) -> FloatArray:
    """How many of the instances that are held each size goes on with, (A,)."""
    same = supply.offer_of == supply.offer_of[held]
    kept: FloatArray = same * np.minimum(supply.instances, supply.instances[held])
    return kept


def _held(trial: TrialState) -> int:
    if trial.held is None:
        raise ValueError(f"trial {trial.id} holds nothing")
    return trial.held
