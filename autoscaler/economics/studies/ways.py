"""What it takes and costs a trial to go its way on a size."""

from __future__ import annotations

import numpy as np

from autoscaler.economics.studies.rung import StudySupply, TrialState
from autoscaler.economics.studies.study_state import StudyState
from autoscaler.goodput.throughput import FloatArray

_LEAST_RATE = 1e-300


def sizes_by_cost(goodput: FloatArray, supply: StudySupply) -> list[int]:
    """Return the sizes that can run, of goodput (A,), by the cost of a unit of work."""
    price = np.maximum(supply.usd_per_second, _LEAST_RATE)
    usd = price / np.maximum(goodput, _LEAST_RATE)
    order: list[int] = np.argsort(usd, kind="stable").tolist()
    return [size for size in order if goodput[size] > 0]


def cheapest_size(goodput: FloatArray, supply: StudySupply) -> int | None:
    """Return the size of least cost for a unit of work, of goodput (A,); None if none can run."""
    return next(iter(sizes_by_cost(goodput, supply)), None)


def size_of(trial: TrialState, supply: StudySupply) -> int | None:
    """What it holds, or would begin on."""
    if trial.held is not None:
        return trial.held
    return cheapest_size(np.median(trial.goodput, axis=0), supply)


def start_seconds(size: int, supply: StudySupply) -> float:
    """From an order to the first step."""
    return float(supply.boot_seconds[size]) + supply.switching.start_seconds


def way_usd(
    trial: TrialState,
    size: int,
    work: float,
    state: StudyState,
    within_seconds: float | None = None,
) -> float:
    """Return the cost of so much work on a size: boot, start and least bill of new instances too.

    Args:
        trial: the trial.
        size: the size.
        work: in the unit of the trial's progress.
        state: the study.
        within_seconds: from now, after which nothing is paid for any more; None: no end.
    """
    supply = state.supply
    rate = np.maximum(trial.goodput[:, size], _LEAST_RATE)
    is_held = trial.held == size
    starts = trial.ready_seconds if is_held else start_seconds(size, supply)
    seconds = starts + float((work / rate).mean())
    if within_seconds is not None:
        seconds = min(seconds, within_seconds)
    price = float(supply.usd_per_second[size])
    if is_held:
        return (seconds - min(trial.paid_seconds, seconds)) * price
    return max(seconds, float(supply.minimum_billed_seconds[size])) * price
