"""What it takes and costs a trial to go its way on a size."""

from __future__ import annotations

import numpy as np

from autoscaler.economics.studies.moment import StudyMoment, TrialAt
from autoscaler.economics.studies.rung import StudySupply
from autoscaler.goodput.throughput import FloatArray

_LEAST_RATE = 1e-300


def cheapest_size(goodput: FloatArray, supply: StudySupply) -> int | None:
    """The size of least $ for a unit of work, of goodput (A,); None where none can run."""
    if not (goodput > 0).any():
        return None
    price = np.maximum(supply.usd_per_second, _LEAST_RATE)
    usd = np.where(goodput > 0, price / np.maximum(goodput, _LEAST_RATE), np.inf)
    return int(usd.argmin())


def size_of(trial: TrialAt, supply: StudySupply) -> int | None:
    """What it holds, or would begin on."""
    if trial.held is not None:
        return trial.held
    return cheapest_size(np.median(trial.goodput, axis=0), supply)


def start_seconds(size: int, supply: StudySupply) -> float:
    """From an order to the first step."""
    return float(supply.boot_seconds[size]) + supply.switching.start_seconds


def way_usd(trial: TrialAt, size: int, work: float, moment: StudyMoment) -> float:
    """What so much work costs on a size: what has to boot, start or be billed at least, too."""
    supply = moment.supply
    rate = np.maximum(trial.goodput[:, size], _LEAST_RATE)
    seconds = float((work / rate).mean())
    price = float(supply.usd_per_second[size])
    if trial.held == size:
        paid = min(trial.paid_seconds, trial.ready_seconds + seconds)
        return (trial.ready_seconds + seconds - paid) * price
    seconds += start_seconds(size, supply)
    return max(seconds, float(supply.minimum_billed_seconds[size])) * price
