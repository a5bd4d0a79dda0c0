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
from autoscaler.economics.remaining import UNKNOWN_REMAINING_SECONDS, knows_the_end
from autoscaler.economics.supply import IntArray
from autoscaler.goodput.batch import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.throughput import FloatArray
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
        kept = kept_in_a_change(self.pause_seconds, self.seconds.get(held_devices))
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
class Curve:
    """What is expected of a job in C sizes.

    Attributes:
        weight: what a second of its waiting costs.
        uses: devices, each as many times as it is fast where there are several kinds, (1, C).
        rate: useful examples a second, (C,), above 0.
        work: useful examples left.
        measured_devices: the most it was measured on, or 1.
    """

    weight: float
    uses: FloatArray
    rate: FloatArray
    work: float
    measured_devices: int


def bids(jobs: Sequence[JobSnapshot], pool: Pool, now_seconds: float) -> list[Bid]:
    """The bid of each job; there must be devices available."""
    sizes = _sizes(pool)
    curves = [_curve(job, pool.device_kind, sizes, now_seconds) for job in jobs]
    prices = finish_prices_of(curves, np.array([float(pool.available)]))[:, 0].tolist()
    pauses = pauses_seconds(jobs)
    return [_bid(*each) for each in zip(jobs, curves, prices, pauses, strict=True)]


def kept_in_a_change(
    pause_seconds: float, left_seconds: float | None, horizon_seconds: float = HORIZON_SECONDS
) -> float:
    """The share of its worth that what a change leads to keeps, after its pause."""
    if left_seconds is not None:
        horizon_seconds = min(horizon_seconds, left_seconds)
    return 1.0 - pause_seconds / horizon_seconds if pause_seconds < horizon_seconds else 0.0


def horizon_of(job: JobSnapshot, now_seconds: float, least_seconds: float) -> float:
    """How long a change is taken to last: as what the job had lasted so far, if that is longer."""
    if job.service.started_seconds is None:
        return least_seconds
    ran_seconds = now_seconds - job.service.started_seconds
    return max(least_seconds, ran_seconds / (job.service.restarts + 1))


def finish_prices_of(curves: Sequence[Curve], available: FloatArray) -> FloatArray:
    """What a device of those `available`, (1,), is worth when each job finishes: (n, 1).

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
            uses=own.uses,
        )
        for own in (curves[i] for i in order)
    ]
    prices = np.zeros((len(curves), len(available)))
    prices[order] = finish_prices(fluid, available)
    return prices


def pauses_seconds(jobs: Sequence[JobSnapshot]) -> list[float]:
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


def _curve(job: JobSnapshot, kind: str | None, sizes: _Sizes, now_seconds: float) -> Curve:
    """Of a job of which nothing is known, one device is as good as any."""
    model = None if kind is None else job.models.get(kind)
    if model is None:
        devices, rate, measured = sizes.devices[:1], np.ones(1), 1
    else:
        rate = rate_of(model, job, sizes.machines, sizes.devices)
        runs = (rate > 0) & (sizes.machines <= max(job.instances.maximum, 1))
        devices, rate = sizes.devices[runs], rate[runs]
        measured = max((devices for _, devices in model.measured), default=1)
    work = work_left(job, float(rate[0]), now_seconds)
    return Curve(job.weight, devices[None].astype(np.float64), rate, work, measured)


def work_left(job: JobSnapshot, rate_on_one: float, now_seconds: float) -> float:
    """Useful examples; where that is not known as many as it may have made by now."""
    work = job.remaining_examples
    if work is None or not knows_the_end(job):
        age_seconds = now_seconds - job.submitted_seconds
        work = rate_on_one * max(UNKNOWN_REMAINING_SECONDS, age_seconds)
    return max(work, 0.0)


def rate_of(
    model: ThroughputModel, job: JobSnapshot, machines: IntArray, devices: IntArray
) -> FloatArray:
    """Useful examples a second, by the point estimate, and what was measured beside it: (C,)."""
    noise_examples = 0.0 if job.noise is None else job.noise.examples
    point, bounds = predictor_of((model.point,)), job.batch.on(model.device_kind)
    (rate,) = goodput_table(point, noise_examples, bounds, machines, devices)
    slower = {(e.instances, e.devices): float(np.mean(e.log_errors)) for e in model.size_errors}
    each = zip(machines.tolist(), devices.tolist(), strict=True)
    found: FloatArray = rate * np.exp([-slower.get(size, 0.0) for size in each])
    return found


def value_of_progress(own: Curve, finish_prices: FloatArray) -> float:
    """What a useful example is worth: its least price at what devices are worth at the end."""
    return float(price_of_progress(finish_prices @ own.uses, own.weight, own.rate).min())


def _bid(job: JobSnapshot, own: Curve, finish_price: float, pause_seconds: float) -> Bid:
    value = value_of_progress(own, np.array([finish_price]))
    devices = own.uses[0].astype(np.int64).tolist()
    return Bid(
        job=job,
        pause_seconds=pause_seconds,
        worth=dict(zip(devices, (value * own.rate).tolist(), strict=True)),
        seconds=dict(zip(devices, (own.work / own.rate).tolist(), strict=True)),
        most_devices=GROWTH * own.measured_devices,
        finish_price=finish_price,
    )
