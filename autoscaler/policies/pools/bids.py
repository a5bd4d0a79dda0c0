"""Worth of the devices of a fixed pool to each of its jobs.

Devices have no price and a second of waiting costs each job its weight. The worth of a device
follows from the jobs alone. Progress has the price that it will have when the job finishes,
``lambda = min_k (w + mu(T) k) / G(k)``, mu(T) the price of a device then
(docs/economics-fleets.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.economics.allocation.remaining import UNKNOWN_REMAINING_SECONDS, knows_the_end
from autoscaler.economics.pricing.price import price_of_progress
from autoscaler.economics.scarcity.fluid import FluidJobs, finish_prices
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.batch_search import goodput_table
from autoscaler.goodput.formulas import predictor_of
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.pools.pool import Pool

# Largest growth over the most devices measured, and devices of a new job. Of 1, 2 and 4 at first,
# 4 was best on two published workloads, with the fewest restarts.
GROWTH = 4
# Longest assumed life of a plan: the gain of a change in that time has to exceed its pause.
HORIZON_SECONDS = 300.0


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBid:
    """Worth of devices to one job, in weighted seconds of waiting per second.

    Attributes:
        job: the job.
        pause_seconds: pause of the job at a change.
        worth: worth by number of devices, for each size on which the job runs.
        seconds: seconds to the end by number of devices.
        most_devices: most devices before larger sizes are measured.
        finish_price: price of a device when the job finishes.
    """

    job: JobSnapshot
    pause_seconds: float
    worth: Mapping[int, float]
    seconds: Mapping[int, float]
    most_devices: int
    finish_price: float

    def worth_from(self, held_devices: int) -> dict[int, float]:
        """Return worth by devices for a job that holds so many; a change is charged its pause."""
        kept_share = kept_in_a_change(self.pause_seconds, self.seconds.get(held_devices))
        most = max(self.most_devices, held_devices)
        return {
            devices: value if devices == held_devices else kept_share * value
            for devices, value in self.worth.items()
            if devices <= most
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Sizes:
    """Device counts considered, ascending from 1, and the least machines of each: (C,) each."""

    devices: IntArray
    machines: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class ScalingCurve:
    """Expected rates of a job at C sizes.

    Attributes:
        weight: cost of a second of waiting.
        uses: devices, (1, C); counted by their relative speed where there are several kinds.
        rate: useful examples per second, (C,), above 0.
        work: useful examples left.
        measured_devices: most devices measured, at least 1.
    """

    weight: float
    uses: FloatArray
    rate: FloatArray
    work: float
    measured_devices: int


def bids(jobs: Sequence[JobSnapshot], pool: Pool, now_seconds: float) -> list[DeviceBid]:
    """Return the bid of each job; the pool must have devices available."""
    sizes = _sizes(pool)
    curves = [_curve(job, pool.device_kind, sizes, now_seconds) for job in jobs]
    prices = finish_prices_of(curves, np.array([float(pool.available)]))[:, 0].tolist()
    pauses = pauses_seconds(jobs)
    return [_bid(*inputs) for inputs in zip(jobs, curves, prices, pauses, strict=True)]


def kept_in_a_change(
    pause_seconds: float, left_seconds: float | None, horizon_seconds: float = HORIZON_SECONDS
) -> float:
    """Return the fraction of its worth that a new size keeps after the pause of the change.

    The horizon is at most the seconds left, if known.
    """
    if left_seconds is not None:
        horizon_seconds = min(horizon_seconds, left_seconds)
    return 1.0 - pause_seconds / horizon_seconds if pause_seconds < horizon_seconds else 0.0


def horizon_of(job: JobSnapshot, now_seconds: float, least_seconds: float) -> float:
    """Return the seconds that a change is assumed to last.

    They are the job's average time between restarts, at least `least_seconds`.
    """
    if job.service.started_seconds is None:
        return least_seconds
    ran_seconds = now_seconds - job.service.started_seconds
    return max(least_seconds, ran_seconds / (job.service.restarts + 1))


def finish_prices_of(curves: Sequence[ScalingCurve], available: FloatArray) -> FloatArray:
    """Return the price of a device when each job finishes, (n, 1), of those `available`, (1,).

    Of two jobs with equal curves, the first to finish pays the other's price and remains first:
    both orders are fixed points. The fluid run keeps ties in the given order: the shortest job
    first.
    """
    order = sorted(
        range(len(curves)), key=lambda index: curves[index].work / curves[index].rate.max()
    )
    in_order, nothing = [curves[index] for index in order], np.zeros(len(curves))
    rate = np.concatenate([curve.rate for curve in in_order])
    jobs = FluidJobs(
        value_of_time=np.array([curve.weight for curve in in_order]),
        work=np.array([curve.work for curve in in_order]),
        job=np.repeat(np.arange(len(curves)), [len(curve.rate) for curve in in_order]),
        usd_per_second=np.zeros(len(rate)),
        rate=rate,
        uses=np.concatenate([curve.uses for curve in in_order], axis=1),
        held_uses=nothing[None],
        keeping_usd_per_second=nothing,
        starting_share=nothing,
    )
    prices = np.zeros((len(curves), len(available)))
    prices[order] = finish_prices(jobs, available)
    return prices


def pauses_seconds(jobs: Sequence[JobSnapshot]) -> list[float]:
    """Return the pause of each job, at least the median of the jobs that have restarted.

    A job without restarts, or whose restarts were all full stops, has no measured pause.
    """
    changed = [job.switching.pause_seconds for job in jobs if job.service.restarts]
    median_pause = float(np.median(changed)) if changed else 0.0
    return [max(job.switching.pause_seconds, median_pause) for job in jobs]


def _sizes(pool: Pool) -> _Sizes:
    """Return fractions of the largest machine (2^k and 3/2 x 2^k), then whole machines."""
    capacity = sorted((devices for devices in pool.capacity.values() if devices), reverse=True)
    powers = 2 ** np.arange(capacity[0].bit_length())
    parts = np.concatenate([powers, 3 * powers // 2])
    devices = np.unique(np.concatenate([parts[parts <= capacity[0]], np.cumsum(capacity)]))
    return _Sizes(devices, np.array(pool.fewest_machines())[devices - 1])


def _curve(job: JobSnapshot, kind: str | None, sizes: _Sizes, now_seconds: float) -> ScalingCurve:
    """Return the job's curve; without a model the only size is one device at rate 1."""
    model = None if kind is None else job.models.get(kind)
    if model is None:
        devices, rate, measured = sizes.devices[:1], np.ones(1), 1
    else:
        rate = rate_of(model, job, sizes.machines, sizes.devices)
        runs = (rate > 0) & (sizes.machines <= max(job.instances.maximum, 1))
        devices, rate = sizes.devices[runs], rate[runs]
        measured = max((devices for _, devices in model.measured), default=1)
    work = work_left(job, float(rate[0]), now_seconds)
    return ScalingCurve(job.weight, devices[None].astype(np.float64), rate, work, measured)


def work_left(job: JobSnapshot, rate_on_one: float, now_seconds: float) -> float:
    """Return the useful examples left; if unknown, an estimate from the job's age.

    The estimate is the work of one device in `UNKNOWN_REMAINING_SECONDS` or in the job's age,
    whichever is longer.
    """
    work = job.remaining_examples
    if work is None or not knows_the_end(job):
        age_seconds = now_seconds - job.submitted_seconds
        work = rate_on_one * max(UNKNOWN_REMAINING_SECONDS, age_seconds)
    return max(work, 0.0)


def rate_of(
    model: ThroughputModel, job: JobSnapshot, machines: IntArray, devices: IntArray
) -> FloatArray:
    """Return useful examples per second, (C,), by the point estimate and its measured errors."""
    noise_examples = 0.0 if job.noise is None else job.noise.examples
    point, bounds = predictor_of((model.point,)), job.batch.on(model.device_kind)
    (rate,) = goodput_table(point, noise_examples, bounds, machines, devices)
    slower = {
        (error.instances, error.devices): float(np.mean(error.log_errors))
        for error in model.size_errors
    }
    sizes = zip(machines.tolist(), devices.tolist(), strict=True)
    corrected: FloatArray = rate * np.exp([-slower.get(size, 0.0) for size in sizes])
    return corrected


def value_of_progress(curve: ScalingCurve, finish_prices: FloatArray) -> float:
    """Return the value of a useful example: its least price at the finish price of devices."""
    return float(price_of_progress(finish_prices @ curve.uses, curve.weight, curve.rate).min())


def _bid(
    job: JobSnapshot, curve: ScalingCurve, finish_price: float, pause_seconds: float
) -> DeviceBid:
    """Return the job's bid from its curve and the finish price of a device."""
    value = value_of_progress(curve, np.array([finish_price]))
    devices = curve.uses[0].astype(np.int64).tolist()
    return DeviceBid(
        job=job,
        pause_seconds=pause_seconds,
        worth=dict(zip(devices, (value * curve.rate).tolist(), strict=True)),
        seconds=dict(zip(devices, (curve.work / curve.rate).tolist(), strict=True)),
        most_devices=GROWTH * curve.measured_devices,
        finish_price=finish_price,
    )
