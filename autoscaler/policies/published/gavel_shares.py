"""Gavel's linear programs: each job's share of time on each kind of device.

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

# Range of the bisection for the ratio of finish times, and the factor at which it ends.
_LOWEST_RATIO, _HIGHEST_RATIO = 1e-3, 1e6
_RATIO_STEP = 1.01
_DECIMALS = 5


class GavelObjective(StrEnum):
    """Objective of the linear program for the shares."""

    MAX_SUM_THROUGHPUT = "max-sum-throughput"
    MAX_MIN = "max-min"
    MAKESPAN = "makespan"
    COST = "cost"
    FINISH_TIME_FAIRNESS = "finish-time-fairness"


@dataclass(frozen=True, slots=True, eq=False)
class SharedKinds:
    """n jobs on k kinds of device.

    Attributes:
        throughput: steps per second of each job on the devices it asked for, (n, k); 0 where it
            cannot run.
        gang: devices that each job asked for, (n,).
        devices: devices of each kind, (k,).
        usd_per_hour: price of a device of each kind, (k,), above 0.
        weight: weight of each job, (n,).
        age_seconds: seconds since each job was submitted, (n,).
        steps_left: steps left of each job, (n,).
        steps: steps of each job's whole run, (n,).
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
        """X_equal, (n, k): equal devices of every kind for each job, at most all of its time."""
        devices_per_job = self.devices / np.maximum(self.gang[:, None] * len(self.gang), 1.0)
        time_shares: FloatArray = devices_per_job / np.maximum(
            devices_per_job.sum(axis=1, keepdims=True), 1.0
        )
        return time_shares

    @property
    def equal_throughput(self) -> FloatArray:
        """Steps per second of each job on its equal share, (n,), above 0."""
        throughput: FloatArray = (self.throughput * self.equal_shares).sum(axis=1)
        positive: FloatArray = np.maximum(throughput, 1e-12)
        return positive


def shares(objective: GavelObjective, kinds: SharedKinds) -> FloatArray:
    """Return X, (n, k): each job's share of time on each kind; rows sum to at most 1.

    No kind is used beyond its devices. Equal jobs get the mean of their shares, which is as good
    as any vertex that the simplex method finds. The interior-point solver of the paper gives equal
    shares too, so that jobs take turns.

    Raises:
        SolverError: the solver finds no shares.
    """
    time_shares = _PROGRAMS[objective](kinds)
    if objective not in _PROGRESS_OBJECTIVES:
        time_shares = _mean_of_equal_jobs(time_shares, kinds)
    return np.clip(time_shares.round(_DECIMALS), 0.0, 1.0)


def _mean_of_equal_jobs(time_shares: FloatArray, kinds: SharedKinds) -> FloatArray:
    """Return the shares averaged over jobs with the same throughputs, devices and weight."""
    features = np.column_stack([kinds.throughput, kinds.gang, kinds.weight])
    _, group = np.unique(features, axis=0, return_inverse=True)
    total = np.zeros((int(group.max()) + 1, time_shares.shape[1]))
    np.add.at(total, group, time_shares)
    mean: FloatArray = (total / np.bincount(group)[:, None])[group]
    return mean


def _maximise_throughput(kinds: SharedKinds) -> FloatArray:
    """Return the shares of the greatest total throughput."""
    return _maximise_total(kinds, kinds.throughput)


def _maximise_throughput_per_usd(kinds: SharedKinds) -> FloatArray:
    """Return the shares of the greatest throughput per dollar."""
    return _maximise_total(kinds, kinds.throughput / kinds.usd_per_hour)


def _maximise_minimum(kinds: SharedKinds) -> FloatArray:
    """Return the shares that maximise the least weighted throughput over an equal share's."""
    return _maximise_common_scale(kinds, kinds.weight * kinds.equal_throughput / kinds.gang)


def _minimise_makespan(kinds: SharedKinds) -> FloatArray:
    """Return the shares of least T with ``throughput >= left / T``; linear in 1 / T."""
    return _maximise_common_scale(kinds, np.maximum(kinds.steps_left, 1e-9))


def _minimise_worst_ratio(kinds: SharedKinds) -> FloatArray:
    """Return the shares of the least worst ``(age + left / throughput) / alone_seconds``.

    Found by bisection of the ratio. `alone_seconds` is the whole run at the present equal share;
    former equal shares are not kept.
    """
    alone_seconds = kinds.steps / kinds.equal_throughput
    low, high, best = _LOWEST_RATIO, _HIGHEST_RATIO, kinds.equal_shares
    while high / low > _RATIO_STEP:
        ratio = float(np.sqrt(low * high))
        slack_seconds = ratio * alone_seconds - kinds.age_seconds
        time_shares = None
        if (slack_seconds > 0).all():
            time_shares = _shares_with_throughput(kinds, kinds.steps_left / slack_seconds)
        low, high = (ratio, high) if time_shares is None else (low, ratio)
        best = best if time_shares is None else time_shares
    return best


_PROGRAMS: dict[GavelObjective, Callable[[SharedKinds], FloatArray]] = {
    GavelObjective.MAX_SUM_THROUGHPUT: _maximise_throughput,
    GavelObjective.MAX_MIN: _maximise_minimum,
    GavelObjective.MAKESPAN: _minimise_makespan,
    GavelObjective.COST: _maximise_throughput_per_usd,
    GavelObjective.FINISH_TIME_FAIRNESS: _minimise_worst_ratio,
}


_PROGRESS_OBJECTIVES = frozenset({GavelObjective.MAKESPAN, GavelObjective.FINISH_TIME_FAIRNESS})


def _maximise_total(kinds: SharedKinds, value: FloatArray) -> FloatArray:
    """Return the shares of the greatest total value.

    Raises:
        SolverError: the program has no solution.
    """
    rows, most = _capacity_rows(kinds)
    solution = _solve(kinds, -value.ravel(), rows, most)
    if solution is None:
        raise SolverError("Gavel's linear program found no shares: those of now are equal ones")
    return solution[: value.size].reshape(value.shape)


def _maximise_common_scale(kinds: SharedKinds, unit: FloatArray) -> FloatArray:
    """Return the shares for the largest z at which every job's throughput is z units or more.

    Raises:
        SolverError: the program has no solution.
    """
    rows, most = _capacity_rows(kinds)
    rows = np.hstack([rows, np.zeros((len(rows), 1))])
    throughput_rows = np.hstack([-_throughput_rows(kinds), unit[:, None]])
    costs = np.zeros(kinds.throughput.size + 1)
    costs[-1] = -1.0
    rows, most = np.vstack([rows, throughput_rows]), np.concatenate([most, np.zeros(len(unit))])
    solution = _solve(kinds, costs, rows, most)
    if solution is None:
        raise SolverError("Gavel's linear program found no shares: those of now are equal ones")
    return solution[:-1].reshape(kinds.throughput.shape)


def _shares_with_throughput(kinds: SharedKinds, least: FloatArray) -> FloatArray | None:
    """Return shares that give every job at least this throughput; None if there are none."""
    rows, most = _capacity_rows(kinds)
    rows, most = np.vstack([rows, -_throughput_rows(kinds)]), np.concatenate([most, -least])
    solution = _solve(kinds, -kinds.throughput.ravel(), rows, most)
    return None if solution is None else solution.reshape(kinds.throughput.shape)


def _capacity_rows(kinds: SharedKinds) -> tuple[FloatArray, FloatArray]:
    """Return the matrix and bounds of the limits: all of a job's time, a kind's devices."""
    count, of_kinds = kinds.throughput.shape
    jobs = np.kron(np.eye(count), np.ones(of_kinds))
    devices = np.kron(kinds.gang, np.eye(of_kinds))
    return np.vstack([jobs, devices]), np.concatenate([np.ones(count), kinds.devices])


def _throughput_rows(kinds: SharedKinds) -> FloatArray:
    """Return the matrix that maps X as one column to the throughput of each job."""
    count, of_kinds = kinds.throughput.shape
    matrix: FloatArray = np.kron(np.eye(count), np.ones(of_kinds)) * kinds.throughput.ravel()
    return matrix


def _solve(
    kinds: SharedKinds, costs: FloatArray, rows: FloatArray, most: FloatArray
) -> FloatArray | None:
    """Return the solution of least cost, or None; shares without throughput are fixed at 0."""
    highest = np.where(kinds.throughput.ravel() > 0, 1.0, 0.0)
    bounds = [(0.0, bound) for bound in highest.tolist()]
    bounds += [(0.0, None)] * (len(costs) - len(bounds))
    result = linprog(costs, A_ub=rows, b_ub=most, bounds=bounds, method="highs")
    if result.status != 0 or result.x is None:
        return None
    solution: FloatArray = result.x
    return solution
