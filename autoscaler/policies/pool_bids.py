"""What devices of a pool that is paid for already are worth to each of its jobs.

Devices cost nothing and a second of waiting costs every job its weight. What a device is worth
comes from the jobs alone: progress has the price that it will have when the job finishes,
``lambda = min_k (w + mu(T) k) / G(k)``, mu(T) the price of a device then. See docs/economics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.economics.fluid import FluidJob, finish_prices
from autoscaler.economics.price import price_of_progress
from autoscaler.economics.supply import IntArray
from autoscaler.economics.switching import UNKNOWN_REMAINING_SECONDS, knows_the_end
from autoscaler.goodput.batch import goodput_table
from autoscaler.goodput.throughput import FloatArray, as_array
from autoscaler.policies.pool import Pool

# A job grows to no more than this many times the most devices it was measured on; at first to as
# many. Of 1, 2 and 4 at first, 4 did best on two published workloads, with the fewest restarts.
GROWTH = 4
# A plan is taken to last no longer: what a change gains in that time has to pay for its pause.
HORIZON_SECONDS = 300.0


@dataclass(frozen=True, slots=True, eq=False)
class Bid:
    """What devices are worth to one job, in weighted seconds of waiting a second.

    Attributes:
        job: whose it is.
        pause_seconds: what a change would hold it up.
        worth: devices -> worth, of every size on which it would run.
        seconds: devices -> how long it would take to the end.
        most_devices: to which it may grow before more is measured.
        finish_price: of a device when it finishes.
    """

    job: JobSnapshot
    pause_seconds: float
    worth: Mapping[int, float]
    seconds: Mapping[int, float]
    most_devices: int
    finish_price: float

    def worth_from(self, held_devices: int) -> dict[int, float]:
        """Of what it may have, to a job that holds so many: a change has its pause to pay for."""
        horizon_seconds = min(HORIZON_SECONDS, self.seconds.get(held_devices, HORIZON_SECONDS))
        kept = 0.0
        if self.pause_seconds < horizon_seconds:
            kept = 1.0 - self.pause_seconds / horizon_seconds
        most = max(self.most_devices, held_devices)
        return {
            devices: value if devices == held_devices else kept * value
            for devices, value in self.worth.items()
            if devices <= most
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """Devices worth a look, ascending from 1, and the machines they lie on at least: (C,) each."""

    devices: IntArray
    machines: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """What is expected of a job: devices (C,), useful examples a second (C,), examples left.

    `weight` is what a second of its waiting costs; `measured_devices` the most it was measured
    on, or 1.
    """

    weight: float
    devices: IntArray
    rate: FloatArray
    work: float
    measured_devices: int


def bids(jobs: Sequence[JobSnapshot], pool: Pool, now_seconds: float) -> list[Bid]:
    """The bid of each job; there must be devices available."""
    sizes = _sizes(pool)
    curves = [_curve(job, pool.device_kind, sizes, now_seconds) for job in jobs]
    prices = _finish_prices(curves, pool.available)
    pauses = _pauses_seconds(jobs)
    return [_bid(*each) for each in zip(jobs, curves, prices, pauses, strict=True)]


def _finish_prices(curves: Sequence[_Curve], available: int) -> list[float]:
    """What a device is worth when each job finishes.

    Of two jobs with equal curves whichever goes first pays the other's price, and so stays first:
    both orders are fixed points. The fluid run keeps ties as they are given: the shortest first.
    """
    order = sorted(range(len(curves)), key=lambda i: curves[i].work / curves[i].rate.max())
    fluid = [
        FluidJob(
            value_of_time=own.weight,
            work=own.work,
            usd_per_second=np.zeros(len(own.rate)),
            rate=own.rate,
            uses=own.devices[None].astype(np.float64),
        )
        for own in (curves[i] for i in order)
    ]
    found = finish_prices(fluid, np.array([float(available)]))[:, 0].tolist()
    prices = dict(zip(order, found, strict=True))
    return [prices[i] for i in range(len(curves))]


def _pauses_seconds(jobs: Sequence[JobSnapshot]) -> list[float]:
    """Of each job its own, but no less than is usual among those that have changed.

    One that has not, or was stopped as a whole each time, has nothing measured of its own.
    """
    changed = [job.switching.pause_seconds for job in jobs if job.service.restarts]
    usual = float(np.median(changed)) if changed else 0.0
    return [max(job.switching.pause_seconds, usual) for job in jobs]


def _sizes(pool: Pool) -> _Sizes:
    """Parts of the largest machine, powers of two and half as much again; then whole machines."""
    capacity = sorted((devices for devices in pool.capacity.values() if devices), reverse=True)
    powers = 2 ** np.arange(capacity[0].bit_length())
    parts = np.concatenate([powers, 3 * powers // 2])
    devices = np.unique(np.concatenate([parts[parts <= capacity[0]], np.cumsum(capacity)]))
    return _Sizes(devices, np.array(pool.fewest_machines())[devices - 1])


def _curve(job: JobSnapshot, kind: str | None, sizes: _Sizes, now_seconds: float) -> _Curve:
    """Of a job of which nothing is known, one device is as good as any."""
    model = None if kind is None else job.models.get(kind)
    if model is None:
        devices, rate, measured = sizes.devices[:1], np.ones(1), 1
    else:
        rate = _rate(model, job, sizes)
        runs = (rate > 0) & (sizes.machines <= max(job.instances.maximum, 1))
        devices, rate = sizes.devices[runs], rate[runs]
        measured = max((devices for _, devices in model.measured), default=1)
    work = job.remaining_examples
    if work is None or not knows_the_end(job):
        age_seconds = now_seconds - job.submitted_seconds
        work = float(rate[0]) * max(UNKNOWN_REMAINING_SECONDS, age_seconds)
    return _Curve(job.weight, devices, rate, max(work, 0.0), measured)


def _rate(model: ThroughputModel, job: JobSnapshot, sizes: _Sizes) -> FloatArray:
    """By the point estimate, and what was measured beside it."""
    noise_examples = 0.0 if job.noise is None else job.noise.examples
    theta = np.atleast_2d(as_array(model.point))
    (rate,) = goodput_table(theta, noise_examples, job.batch, sizes.machines, sizes.devices)
    slower = {(e.instances, e.devices): float(np.mean(e.log_errors)) for e in model.size_errors}
    each = zip(sizes.machines.tolist(), sizes.devices.tolist(), strict=True)
    found: FloatArray = rate * np.exp([-slower.get(size, 0.0) for size in each])
    return found


def _bid(job: JobSnapshot, own: _Curve, finish_price: float, pause_seconds: float) -> Bid:
    value = price_of_progress(finish_price * own.devices, job.weight, own.rate).min()
    devices = own.devices.tolist()
    return Bid(
        job=job,
        pause_seconds=pause_seconds,
        worth=dict(zip(devices, (value * own.rate).tolist(), strict=True)),
        seconds=dict(zip(devices, (own.work / own.rate).tolist(), strict=True)),
        most_devices=GROWTH * own.measured_devices,
        finish_price=finish_price,
    )
