"""Weight of a dollar for the jobs that share budgets: the shadow price of the budget, plus one.

A budget bounds what its jobs spend until the end of a period. With the multiplier `lambda` of that
bound, the jobs minimise `work / G(a) * ((1 + lambda) p(a) + v)`: each dollar counts `1 + lambda`.
All jobs of the budget slow by the same weight, the least at which their spending fits. Several
budgets of one job add their multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.budget import BudgetRoom, BudgetState
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# Weights are powers of this number, so that small changes of spending change no plan.
_STEP = 1.05
_MOST_STEPS = 95
# Rounds over all budgets in which each one's weight is found beside those of the others.
_ROUNDS = 8
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class SpendingJobs:
    """n jobs with up to M allocations each, as arrays, and B budgets.

    Attributes:
        value_of_time: of each job, $ per second, (n,).
        remaining: useful examples left of each job, (n,).
        usd_per_second: price of each allocation, (n, M).
        rate: useful examples a second on each allocation, (n, M).
        exists: whether a job may hold an allocation, (n, M).
        wished: allocation that each job would choose at weight 1, (n,); -1: none.
        is_fixed: whether a deadline or an own budget decides, so that a job keeps its plan at any
            weight, (n,).
        is_member: whether a budget covers a job, (B, n).
    """

    value_of_time: FloatArray
    remaining: FloatArray
    usd_per_second: FloatArray
    rate: FloatArray
    exists: BoolArray
    wished: IntArray
    is_fixed: BoolArray
    is_member: BoolArray

    def choices(self, weights: FloatArray) -> IntArray:
        """Return the allocation of each job at its weight, (n,); -1: none.

        A job that slows takes no dearer one than at weight 1.
        """
        rows = np.arange(len(self.wished))
        wished_price = self.usd_per_second[rows, np.maximum(self.wished, 0)]
        is_open = self.exists & (self.usd_per_second <= wished_price[:, None])
        paid = self.usd_per_second * weights[:, None] + self.value_of_time[:, None]
        price = np.where(is_open & (self.rate > 0), paid / np.maximum(self.rate, 1e-300), np.inf)
        slowed = price.argmin(axis=1)
        keeps = self.is_fixed | (weights <= 1.0) | ~np.isfinite(price[rows, slowed])
        return np.where(keeps | (self.wished < 0), self.wished, slowed)

    def spending(self, choices: IntArray, seconds: float) -> FloatArray:
        """Return what each job spends within `seconds` from now, US dollars, (n,)."""
        rows, columns = np.arange(len(choices)), np.maximum(choices, 0)
        rate = np.maximum(self.rate[rows, columns], 1e-300)
        lasting = np.minimum(self.remaining / rate, seconds)
        return np.where(choices >= 0, self.usd_per_second[rows, columns] * lasting, 0.0)

    def usd_per_hour(self, choices: IntArray) -> FloatArray:
        """Return the price of each job's allocation, $/h, (n,)."""
        price = self.usd_per_second[np.arange(len(choices)), np.maximum(choices, 0)]
        return np.where(choices >= 0, price * SECONDS_PER_HOUR, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class BudgetPrices:
    """Weights of B budgets and of n jobs.

    Attributes:
        weights: how much each dollar of a budget counts, (B,).
        binding: the room that would be exceeded at a lower weight; None at weight 1.
        job_weights: how much each dollar of a job counts, (n,); 1 for a job that does not slow.
        choices: allocation of each job at its weight, (n,).
    """

    weights: FloatArray
    binding: tuple[BudgetRoom | None, ...]
    job_weights: FloatArray
    choices: IntArray


def budget_prices(jobs: SpendingJobs, budgets: Sequence[BudgetState]) -> BudgetPrices:
    """Return the least weights at which the jobs keep within all budgets, or the highest."""
    steps = np.zeros(len(budgets), dtype=np.int64)
    for _ in range(_ROUNDS):
        before = steps.copy()
        for index, budget in enumerate(budgets):
            steps[index] = _least_steps(jobs, budget, steps, index)
        if (steps == before).all():
            break
    weights = np.where(jobs.is_fixed, 1.0, _job_weights(jobs, steps))
    binding = tuple(
        None if not steps[index] else _exceeded(jobs, budget, _with(steps, index, -1), index)
        for index, budget in enumerate(budgets)
    )
    return BudgetPrices(np.power(_STEP, steps), binding, weights, jobs.choices(weights))


def _least_steps(jobs: SpendingJobs, budget: BudgetState, steps: IntArray, index: int) -> int:
    """Return the least weight of one budget, in steps, beside those of the others."""
    low, high = 0, _MOST_STEPS
    if _exceeded(jobs, budget, _with(steps, index, -int(steps[index])), index) is None:
        return 0
    while high - low > 1:
        middle = (low + high) // 2
        changed = _with(steps, index, middle - int(steps[index]))
        if _exceeded(jobs, budget, changed, index) is None:
            high = middle
        else:
            low = middle
    return high


def _exceeded(
    jobs: SpendingJobs, budget: BudgetState, steps: IntArray, index: int
) -> BudgetRoom | None:
    """Return the first room of a budget that its jobs exceed at these weights; None if none."""
    choices = jobs.choices(_job_weights(jobs, steps))
    is_member = jobs.is_member[index]
    usd_per_hour = float(jobs.usd_per_hour(choices)[is_member].sum())
    for room in budget.rooms:
        usd = float(jobs.spending(choices, room.seconds)[is_member].sum())
        is_slow = usd_per_hour <= room.usd_per_hour * (1.0 + _TOLERANCE)
        if usd > room.usd * (1.0 + _TOLERANCE) and not is_slow:
            return room
    return None


def _with(steps: IntArray, index: int, change: int) -> IntArray:
    changed = steps.copy()
    changed[index] += change
    return changed


def _job_weights(jobs: SpendingJobs, steps: IntArray) -> FloatArray:
    multipliers = np.power(_STEP, steps) - 1.0
    return np.asarray(1.0 + multipliers @ jobs.is_member, dtype=np.float64)
