"""Studies to simulate: learning curves of one source, measured scaling of another.

Curves, hyper-parameters and times on one device are LCBench's (256 configurations on four tasks),
times scaled so that a median full training takes `MEDIAN_SECONDS`. How much faster a trial is on
more devices is measured step times of an application published with Pollux (OSDI'21), at the
trial's own batch: the least batch of the space stands for the application's initial batch, and a
fixed global batch is split over the devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.economics.studies.supply import StudySupply, TrialSwitching
from autoscaler.goodput.batch_choice import split_batch
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.profiles.step_times import Unprofiled

Array = NDArray[np.float64]

APPLICATIONS = ("bert", "cifar10", "deepspeech2", "imagenet", "yolov3")
HYPER_PARAMETERS = (
    "batch_size",
    "learning_rate",
    "max_dropout",
    "max_units",
    "momentum",
    "num_layers",
    "weight_decay",
)
RUNG_ENDS = (2, 6, 17, 52)
RUNG_TRIALS = (27, 9, 3, 1)
LEAST_BATCH = 16.0
MEDIAN_SECONDS = 2 * 3600.0
DEVICES = (1, 2, 3, 4, 6, 8, 12, 16)
REPORT_NOISE = 0.5
MEASUREMENT_NOISE = 0.03
# Trials of an earlier study of the same program that were measured on all sizes.
PILOTS = 4


@dataclass(frozen=True)
class Market:
    """Offer that trials use, on terms that are the same for all arms."""

    devices: int = 1
    usd_per_device_hour: float = 2.5
    boot_seconds: float = 120.0
    pause_seconds: float = 60.0
    start_seconds: float = 30.0
    handover_seconds: float = 10.0
    minimum_billed_seconds: int = 60
    reclaims_per_hour: float = 0.0
    lost_seconds: float = 150.0
    most_devices: int = 64

    @cached_property
    def supply(self) -> StudySupply:
        """Sizes: whole instances, and part of the devices of one that has several."""
        offer = Offer(
            id="node",
            provider="simulated",
            instance_type="node",
            zone="a",
            purchase=Purchase.SPOT if self.reclaims_per_hour else Purchase.ON_DEMAND,
            devices=self.devices,
            device_kind="t4",
            usd_per_hour=Decimal(str(self.usd_per_device_hour)) * self.devices,
            boot_seconds=self.boot_seconds,
            network_bytes_per_second=1e9,
            reclaims_per_hour=self.reclaims_per_hour,
            minimum_billed_seconds=self.minimum_billed_seconds,
        )
        switching = TrialSwitching(
            self.pause_seconds, self.start_seconds, self.handover_seconds, self.lost_seconds
        )
        limit = Limit("quota", LimitUnit.DEVICES, float(self.most_devices))
        return StudySupply((offer,), tuple(self._sizes()), switching, (limit,))

    def _sizes(self) -> list[Allocation]:
        sizes = []
        for devices in DEVICES:
            used = min(devices, self.devices)
            if devices % used == 0:
                sizes.append(Allocation("node", devices // used, used))
        return sizes


@dataclass(frozen=True, eq=False)
class Case:
    """Study with its true curves and speeds.

    Attributes:
        name: task, application and seed.
        rate: epochs a second of each trial on each size, (N, A).
        values: what each trial reports at the end of each rung, (R, N): the same for all arms.
        features: hyper-parameters, (N, H), logarithms where a parameter is above 0.
        noise: what measurements of each rate are off by, in logarithms, (N, A).
        pilots: epochs a second of trials of an earlier study, as measured on each size, (P, A).
        pilot_features: their hyper-parameters, (P, H).
        seed: of all that is drawn besides.
    """

    name: str
    market: Market
    rate: Array
    values: Array
    features: Array
    noise: Array
    pilots: Array
    pilot_features: Array
    seed: int

    @cached_property
    def survivors(self) -> tuple[tuple[int, ...], ...]:
        """Trials of each rung, the best first except in the first rung."""
        alive = tuple(range(RUNG_TRIALS[0]))
        rungs = [alive]
        for rung, count in enumerate(RUNG_TRIALS[1:]):
            order = sorted(alive, key=lambda trial: -self.values[rung, trial])
            alive = tuple(order[:count])
            rungs.append(alive)
        return tuple(rungs)

    @cached_property
    def work(self) -> tuple[float, ...]:
        """Epochs of each rung."""
        return tuple(float(n) for n in np.diff((0, *RUNG_ENDS)))

    def work_of(self, rung: int, trial: int) -> float:
        """Return the epochs that a trial trains in a rung."""
        return self.work[rung]


@dataclass(frozen=True, eq=False)
class Source:
    """Published data: learning curves and the scaling of applications."""

    tasks: tuple[str, ...]
    accuracy: Array
    seconds: Array
    features: Array
    batch: Array
    profiles: Mapping[str, Profile]


def read_source(folder: Path) -> Source:
    """Read the curves and the profiles below the folder of published data."""
    table = np.load(folder / "hpo" / "lcbench-surrogate.npz")
    columns = [np.asarray(table[name], dtype=np.float64) for name in HYPER_PARAMETERS]
    features = np.stack([np.log(np.maximum(column, 1e-6)) for column in columns], axis=1)
    return Source(
        tuple(str(task) for task in table["openml_task"]),
        np.asarray(table["validation_accuracy"], dtype=np.float64),
        np.asarray(table["seconds"], dtype=np.float64)[:, :, -1],
        features,
        columns[0],
        read_profiles(folder / "pollux" / "app-profiles"),
    )


def cases(source: Source, market: Market, seeds: Sequence[int]) -> list[Case]:
    """Return every task with every application, once for each seed."""
    return [
        make_case(source, market, (task, application), seed)
        for seed in seeds
        for task in range(len(source.tasks))
        for application in APPLICATIONS
    ]


def make_case(source: Source, market: Market, of: tuple[int, str], seed: int) -> Case:
    """Return one study; the seed decides its configurations and measurements."""
    task, application = of
    rng = np.random.default_rng([seed, task, APPLICATIONS.index(application)])
    chosen = rng.permutation(source.features.shape[0])[: RUNG_TRIALS[0] + PILOTS]
    rate = true_rates(source, market, of, chosen)
    at_ends = source.accuracy[task][chosen][:, [end - 1 for end in RUNG_ENDS]].T
    values = at_ends + rng.normal(0.0, REPORT_NOISE, at_ends.shape)
    noise = rng.normal(0.0, MEASUREMENT_NOISE, rate.shape)
    return Case(
        name=f"{source.tasks[task]} x {application} #{seed}",
        market=market,
        rate=rate[:-PILOTS],
        values=values[:, :-PILOTS],
        features=source.features[chosen[:-PILOTS]],
        noise=noise[:-PILOTS],
        pilots=(rate * np.exp(noise))[-PILOTS:],
        pilot_features=source.features[chosen[-PILOTS:]],
        seed=seed,
    )


def true_rates(
    source: Source, market: Market, of: tuple[int, str], chosen: NDArray[np.int64]
) -> Array:
    """Return the epochs per second of the chosen configurations on each size, (N, A)."""
    task, application = of
    epoch = source.seconds[task] / RUNG_ENDS[-1]
    epoch = epoch * MEDIAN_SECONDS / np.median(source.seconds[task])
    profile = source.profiles[application]
    speedups = np.stack([_speedups(profile, source.batch[number], market) for number in chosen])
    rates: Array = speedups / epoch[chosen][:, None]
    return rates


def _speedups(profile: Profile, batch: float, market: Market) -> Array:
    """Return the speed of one trial on each size relative to one device, (A,)."""
    kind = next(iter(profile.kinds))
    examples = round(profile.initial_batch * batch / LEAST_BATCH)
    step = [
        _step_seconds(profile, kind, examples, (size.devices_used,) * size.instances)
        for size in market.supply.sizes
    ]
    step_of_one_device = _step_seconds(profile, kind, examples, (1,))
    return step_of_one_device / np.array(step)


def _step_seconds(profile: Profile, kind: str, examples: int, placement: tuple[int, ...]) -> float:
    try:
        most = int(profile.device_batches(kind, placement)[1])
        split = split_batch(examples, sum(placement), most)
        times = profile.step_times(kind, placement, split.device)
    except Unprofiled:
        return float("inf")
    return times.accumulated_seconds(split.accumulation)
