"""What an allocation is worth to a job beyond its price, where jobs compete for it."""

from __future__ import annotations

import numpy as np

from autoscaler.economics.candidates import Candidates
from autoscaler.economics.supply import BoolArray
from autoscaler.economics.switching import Ground, switches
from autoscaler.goodput.throughput import FloatArray


def value_of_progress(
    candidates: Candidates, among: BoolArray, value_of_time: float, finish_prices: FloatArray
) -> float:
    """lambda, $ per useful example: ``min_a (v + p(a) + sum_r mu_r(T) u_r(a)) / G(a)``.

    Args:
        candidates: A of them.
        among: which may be chosen, (A,); at least one.
        value_of_time: v, $ per second.
        finish_prices: mu(T), what a unit of each limit is worth per second when this job
            finishes, (R,).
    """
    price = candidates.usd_per_second + finish_prices @ candidates.uses
    return float(((value_of_time + price) / candidates.rate)[among].min())


def surplus(candidates: Candidates, value_of_progress_usd: float) -> FloatArray:
    """S, $ per second, (A,): ``lambda G(a) - p(a)``."""
    earned: FloatArray = value_of_progress_usd * candidates.rate - candidates.usd_per_second
    return earned


def surplus_over_horizon(at: Ground, value_of_progress_usd: float, work: float) -> FloatArray:
    """Mean surplus of each candidate until `work` is done there, changing to it included, (A,).

    While new instances boot, the surplus of the old ones is earned and the boot is paid for; in a
    pause the new price is paid for nothing; the rest earns S. What is held changes nothing. A job
    that holds nothing has to boot sooner or later: only what it costs beyond the least counts.
    """
    candidates = at.candidates
    earned = surplus(candidates, value_of_progress_usd)
    horizon_seconds = work / candidates.rate
    if work <= 0:
        return earned
    taken = switches(at, candidates.held, np.arange(len(candidates)))
    if candidates.held is None:
        idle_usd = taken.boot_usd + taken.lost_seconds * earned
        beyond: FloatArray = (idle_usd - idle_usd.min()) / horizon_seconds
        return earned - beyond
    ready_seconds = np.minimum(taken.ready_seconds, horizon_seconds)
    pause_seconds = np.minimum(taken.pause_seconds, horizon_seconds - ready_seconds)
    meanwhile = np.where(taken.works_on, earned[candidates.held], 0.0)
    total = (
        ready_seconds * meanwhile
        - taken.boot_usd
        - pause_seconds * candidates.usd_per_second
        + (horizon_seconds - ready_seconds - pause_seconds) * earned
    )
    value: FloatArray = total / horizon_seconds
    return value


def worth_of_nothing(at: Ground, value: FloatArray, among: BoolArray, work: float) -> float:
    """What giving everything back is worth, $ per second, beside `value` (A,) of the candidates.

    Nothing, for a job that holds nothing. For another less than any allocation it may have, by
    what coming back costs: it is dropped only where a limit leaves no other way.
    """
    candidates = at.candidates
    held = candidates.held
    if held is None:
        return 0.0
    back = switches(at, None, np.array([held]))
    back_usd = float(back.boot_usd[0] + back.pause_seconds[0] * candidates.usd_per_second[held])
    horizon_seconds = max(work / float(candidates.rate[held]), float(back.lost_seconds[0]), 1.0)
    return min(0.0, float(value[among].min(initial=0.0))) - back_usd / horizon_seconds
