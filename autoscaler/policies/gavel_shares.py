"""Gavel's linear programs: the share of its time that each job is to have on each kind of device.

Source: Narayanan et al., Gavel (OSDI'20), section 4 and its table of policies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.optimize import linprog

from autoscaler.domain.errors import SolverError
from autoscaler.goodput.throughput import FloatArray

# A ratio of finish times is looked for between these, up to this factor.
_FAIREST, _LEAST_FAIR = 1e-3, 1e6
_RATIO_STEP = 1.01
_DECIMALS = 5


class GavelObjective(StrEnum):
    """What the shares are to be best at."""

    MAX_SUM_THROUGHPUT = "max-sum-throughput"
    MAX_MIN = "max-min"
    MAKESPAN = "makespan"
    COST = "cost"
    FINISH_TIME_FAIRNESS = "finish-time-fairness"


@dataclass(frozen=True, slots=True, eq=False)
class SharedKinds:
    """n jobs on k kinds of device.

    Attributes:
        throughput: steps a second of each job on the devices it asked for, (n, k); 0 where it
            can't be.
        gang: those devices, (n,).
        devices: of each kind, (k,).
        usd_per_hour: of a device of each kind, (k,), above 0.
        weight: of each job, (n,).
        age_seconds: since each was submitted, (n,).
        steps_left: (n,).
        steps: of the whole run, (n,).
    """

    throughput: FloatArray
    gang: FloatArray
    devices: FloatArray
    usd_per_hour: FloatArray
    weight: FloatArray
    age_seconds: FloatArray
    steps_left: FloatArray
    steps: FloatArray

    @property
    def equal_shares(self) -> FloatArray:
        """X_equal: as many devices of every kind for each job, but no job more than all its time.

        (n, k).
        """
        each = self.devices / np.maximum(self.gang[:, None] * len(self.gang), 1.0)
        found: FloatArray = each / np.maximum(each.sum(axis=1, keepdims=True), 1.0)
        return found

    @property
    def equal_throughput(self) -> FloatArray:
        """Steps a second of each job with its equal share, (n,), above 0."""
        found: FloatArray = (self.throughput * self.equal_shares).sum(axis=1)
        positive: FloatArray = np.maximum(found, 1e-12)
        return positive


def shares(objective: GavelObjective, kinds: SharedKinds) -> FloatArray:
    """X, (n, k): rows sum up to at most 1, and no kind's devices are exceeded.

    Jobs that are alike have equal shares: what a simplex finds for some of them is as good for
    any. So have the interior solutions of the paper's solver, and jobs take turns by them.

    Raises:
        SolverError: no shares were found.
    """
    found = _PROGRAMS[objective](kinds)
    if objective not in _LOOK_AT_PROGRESS:
        found = _evened(found, kinds)
    return np.clip(found.round(_DECIMALS), 0.0, 1.0)


def _evened(found: FloatArray, kinds: SharedKinds) -> FloatArray:
    """The same for jobs with the same throughputs, devices and weight: their mean."""
    what = np.column_stack([kinds.throughput, kinds.gang, kinds.weight])
    _, group = np.unique(what, axis=0, return_inverse=True)
    total = np.zeros((int(group.max()) + 1, found.shape[1]))
    np.add.at(total, group, found)
    mean: FloatArray = (total / np.bincount(group)[:, None])[group]
    return mean


def _max_sum_throughput(kinds: SharedKinds) -> FloatArray:
    return _of_most(kinds, kinds.throughput)


def _cost(kinds: SharedKinds) -> FloatArray:
    """Of most throughput for the money."""
    return _of_most(kinds, kinds.throughput / kinds.usd_per_hour)


def _max_min(kinds: SharedKinds) -> FloatArray:
    """The least weighted throughput over that of an equal share, as large as can be."""
    return _of_largest_common(kinds, kinds.weight * kinds.equal_throughput / kinds.gang)


def _makespan(kinds: SharedKinds) -> FloatArray:
    """``throughput >= left / T`` for the least T: linear in 1/T, so that nothing is bisected."""
    return _of_largest_common(kinds, np.maximum(kinds.steps_left, 1e-9))


def _finish_time_fairness(kinds: SharedKinds) -> FloatArray:
    """The least greatest ``(age + left / throughput) / (whole run / equal throughput)``.

    Bisected. The run on an equal share is all of it at the share of now: what the share was
    before is not remembered.
    """
    alone_seconds = kinds.steps / kinds.equal_throughput
    low, high, best = _FAIREST, _LEAST_FAIR, kinds.equal_shares
    while high / low > _RATIO_STEP:
        ratio = float(np.sqrt(low * high))
        slack_seconds = ratio * alone_seconds - kinds.age_seconds
        found = None
        if (slack_seconds > 0).all():
            found = _reaching(kinds, kinds.steps_left / slack_seconds)
        low, high = (ratio, high) if found is None else (low, ratio)
        best = best if found is None else found
    return best


_PROGRAMS: dict[GavelObjective, Callable[[SharedKinds], FloatArray]] = {
    GavelObjective.MAX_SUM_THROUGHPUT: _max_sum_throughput,
    GavelObjective.MAX_MIN: _max_min,
    GavelObjective.MAKESPAN: _makespan,
    GavelObjective.COST: _cost,
    GavelObjective.FINISH_TIME_FAIRNESS: _finish_time_fairness,
}


_LOOK_AT_PROGRESS = frozenset({GavelObjective.MAKESPAN, GavelObjective.FINISH_TIME_FAIRNESS})


def _of_most(kinds: SharedKinds, value: FloatArray) -> FloatArray:
    """The shares of most value in all."""
    rows, most = _limits(kinds)
    found = _solution(kinds, -value.ravel(), rows, most)
    if found is None:
        raise SolverError("Gavel's linear program found no shares: those of now are equal ones")
    return found[: value.size].reshape(value.shape)


def _of_largest_common(kinds: SharedKinds, unit: FloatArray) -> FloatArray:
    """The shares with which every job's throughput is at least z units, for the largest z."""
    rows, most = _limits(kinds)
    rows = np.hstack([rows, np.zeros((len(rows), 1))])
    reach = np.hstack([-_throughput_rows(kinds), unit[:, None]])
    costs = np.zeros(kinds.throughput.size + 1)
    costs[-1] = -1.0
    rows, most = np.vstack([rows, reach]), np.concatenate([most, np.zeros(len(unit))])
    found = _solution(kinds, costs, rows, most)
    if found is None:
        raise SolverError("Gavel's linear program found no shares: those of now are equal ones")
    return found[:-1].reshape(kinds.throughput.shape)


def _reaching(kinds: SharedKinds, least: FloatArray) -> FloatArray | None:
    """Shares with which every job has at least this throughput; None where there are none."""
    rows, most = _limits(kinds)
    rows, most = np.vstack([rows, -_throughput_rows(kinds)]), np.concatenate([most, -least])
    found = _solution(kinds, -kinds.throughput.ravel(), rows, most)
    return None if found is None else found.reshape(kinds.throughput.shape)


def _limits(kinds: SharedKinds) -> tuple[FloatArray, FloatArray]:
    """No job has more than all its time, no kind more than its devices."""
    count, of_kinds = kinds.throughput.shape
    jobs = np.kron(np.eye(count), np.ones(of_kinds))
    devices = np.kron(kinds.gang, np.eye(of_kinds))
    return np.vstack([jobs, devices]), np.concatenate([np.ones(count), kinds.devices])


def _throughput_rows(kinds: SharedKinds) -> FloatArray:
    """Of X as one column the throughput of each job."""
    count, of_kinds = kinds.throughput.shape
    found: FloatArray = np.kron(np.eye(count), np.ones(of_kinds)) * kinds.throughput.ravel()
    return found


def _solution(
    kinds: SharedKinds, costs: FloatArray, rows: FloatArray, most: FloatArray
) -> FloatArray | None:
    """The column of least cost; of shares that no job can have none is given."""
    highest = np.where(kinds.throughput.ravel() > 0, 1.0, 0.0)
    bounds = [(0.0, one) for one in highest.tolist()]
    bounds += [(0.0, None)] * (len(costs) - len(bounds))
    found = linprog(costs, A_ub=rows, b_ub=most, bounds=bounds, method="highs")
    if found.status != 0 or found.x is None:
        return None
    solution: FloatArray = found.x
    return solution
