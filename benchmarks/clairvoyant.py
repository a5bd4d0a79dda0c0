"""Lower bound on the cost of a job on an elastic cloud: a plan with full knowledge.

The plan knows every step time of the profile and the gradient statistics of the whole run. It
orders instances early enough that they are ready when needed. It pays what every plan pays: whole
instances, their boots, and a pause at each change. Dynamic programming runs over pieces of the
run, each within an epoch and on one allocation.

    CASTOR_DATA=... python benchmarks/clairvoyant.py [--application imagenet]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from data_folder import data_folder
from numpy.typing import NDArray

from autoscaler.domain.offer import Offer, Purchase
from autoscaler.goodput.batch_choice import split_batch
from autoscaler.goodput.efficiency import efficiency
from autoscaler.market.catalogue import MINIMUM_BILLED_SECONDS, instance_type
from autoscaler.simulator.profiles.profiles import Profile, read_profiles
from autoscaler.simulator.profiles.step_times import Unprofiled
from autoscaler.spec.offers_file import OffersFile

FloatArray = NDArray[np.float64]

VALUES_OF_TIME = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
APPLICATIONS = ("bert", "cifar10", "deepspeech2", "yolov3", "imagenet")
# Least number of pieces of a run; an epoch has a whole number of pieces.
_LEAST_PIECES = 40
# Most instances of an offer without a limit, and seconds from an order to training.
_MOST_INSTANCES = 64
_BOOT_SECONDS = 180.0
# Number of batches tried between the least and the largest.
_BATCHES = 60


@dataclass(frozen=True)
class Machine:
    """Offer with its kind of device as profiled, and the most instances of it."""

    offer: Offer
    kind: str
    most: int

    @property
    def usd_per_hour(self) -> float:
        """Price of one instance, $ per hour."""
        return float(self.offer.usd_per_hour)

    @property
    def boot_usd(self) -> float:
        """Cost of the boot of one instance."""
        return self.offer.usd_per_second * self.offer.boot_seconds


@dataclass(frozen=True)
class Ground:
    """Cloud of machines, with the pause at a change of allocation in seconds."""

    machines: Sequence[Machine]
    pause_seconds: float = 1.0


@dataclass(frozen=True)
class Choice:
    """Allocation of `instances` of a machine with `used` devices of each."""

    machine: Machine
    instances: int
    used: int

    @property
    def usd_per_second(self) -> float:
        """Price of all instances, $ per second."""
        return self.instances * self.machine.usd_per_hour / 3600.0


@dataclass(frozen=True)
class Limit:
    """Least cost and the plan that attains it.

    Attributes:
        cost_usd: dollars plus value of time x duration.
        seconds: duration.
        plan: allocations in order.
    """

    cost_usd: float
    seconds: float
    plan: tuple[str, ...]


def machine(type_name: str, kind: str, most: int) -> Machine:
    """Return a type of the catalogue on demand, at its catalogue price."""
    listed = instance_type(type_name)
    offer = Offer(
        id=listed.name,
        provider=listed.provider,
        instance_type=listed.name,
        zone=listed.region,
        purchase=Purchase.ON_DEMAND,
        devices=listed.devices,
        device_kind=listed.device_kind,
        usd_per_hour=listed.price.usd_per_hour,
        boot_seconds=_BOOT_SECONDS,
        network_bytes_per_second=listed.network_bytes_per_second,
        minimum_billed_seconds=MINIMUM_BILLED_SECONDS,
    )
    return Machine(offer, kind, most)


def ground_of(offers: OffersFile, profile: Profile) -> Ground:
    """Return the cloud of a file of offers, each as far as its own limits and the profile go."""
    machines = []
    for offer in offers.offers:
        kind = offers.profile_kinds.get(offer.id, offer.device_kind)
        own_limits = [limit for limit in offers.limits if limit.offers == frozenset([offer.id])]
        most = min(
            (int(limit.maximum / limit.use(offer)) for limit in own_limits),
            default=_MOST_INSTANCES,
        )
        machines.append(Machine(offer, kind, _most_profiled(profile, kind, offer.devices, most)))
    return Ground(tuple(machine for machine in machines if machine.most))


def _most_profiled(profile: Profile, kind: str, devices: int, most: int) -> int:
    """Return the largest number of whole nodes up to which every number is profiled."""
    counts = takewhile(
        lambda count: _is_profiled(profile, kind, (devices,) * count), range(1, most + 1)
    )
    return max(counts, default=0)


def _is_profiled(profile: Profile, kind: str, placement: tuple[int, ...]) -> bool:
    try:
        profile.device_batches(kind, placement)
    except Unprofiled:
        return False
    return True


# The published prices of us-east-1; A100 nodes were measured in twos at most.
CLOUD = Ground((machine("g4dn.12xlarge", "aws", 16), machine("p4d.24xlarge", "dgx-ext", 2)))


def limit(profile: Profile, ground: Ground, value_of_time: float) -> Limit:
    """Return the least of dollars + value of time ($/h) x duration over all plans."""
    value = value_of_time / 3600.0
    choices = tuple(choices_of(profile, ground))
    price = np.array([choice.usd_per_second for choice in choices])
    seconds = piece_seconds(profile, choices)
    switch = switches_usd(choices, ground, price + value)
    cost_ahead = np.zeros(len(choices))
    best: list[NDArray[np.int64]] = []
    for piece in range(len(seconds) - 1, -1, -1):
        cost_by_next = switch + cost_ahead[None, :]
        best.append(cost_by_next.argmin(axis=1))
        cost_ahead = seconds[piece] * (price + value) + cost_by_next.min(axis=1)
    boot_seconds = np.array([choice.machine.offer.boot_seconds for choice in choices])
    start_cost = (boot_seconds + ground.pause_seconds) * (price + value) + cost_ahead
    return _traced_plan(
        choices, seconds, best[::-1], ground, (int(start_cost.argmin()), start_cost.min())
    )


def _traced_plan(
    choices: Sequence[Choice],
    seconds: FloatArray,
    best: Sequence[NDArray[np.int64]],
    ground: Ground,
    start: tuple[int, float],
) -> Limit:
    """Return the plan along the best choices from the start."""
    index, cost = start
    total = choices[index].machine.offer.boot_seconds + ground.pause_seconds
    plan: list[str] = []
    for piece, following in enumerate(best):
        choice = choices[index]
        description = f"{choice.instances} x {choice.used} of {choice.machine.offer.id}"
        if not plan or plan[-1] != description:
            plan.append(description)
        total += seconds[piece, index]
        next_index = int(following[index])
        total += ground.pause_seconds * (next_index != index)
        index = next_index
    return Limit(float(cost), float(total), tuple(plan))


def choices_of(profile: Profile, ground: Ground) -> list[Choice]:
    """Return every profiled allocation: whole instances, and a part of a single one."""
    choices = []
    for machine in ground.machines:
        parts = [Choice(machine, 1, used) for used in range(1, machine.offer.devices)]
        devices = machine.offer.devices
        whole = [Choice(machine, count, devices) for count in range(1, machine.most + 1)]
        for choice in (*parts, *whole):
            if _is_profiled(profile, machine.kind, (choice.used,) * choice.instances):
                choices.append(choice)
    return choices


def piece_seconds(profile: Profile, choices: Sequence[Choice]) -> FloatArray:
    """Return the seconds of each piece on each allocation at its best batch, (P, A)."""
    ends = profile.epoch_end_examples
    starts = np.concatenate([[0.0], ends[:-1]])
    pieces_per_epoch = max(1, -(-_LEAST_PIECES // len(ends)))
    noises: dict[int, FloatArray] = {}
    goodput = np.stack([_epoch_goodput(profile, choice, noises) for choice in choices], axis=1)
    epoch_seconds = (ends - starts)[:, None] / goodput
    return np.repeat(epoch_seconds / pieces_per_epoch, pieces_per_epoch, axis=0)


def _epoch_goodput(profile: Profile, choice: Choice, noises: dict[int, FloatArray]) -> FloatArray:
    """Return the useful examples per second of each epoch, (E,).

    Args:
        profile: profile of the application.
        choice: the allocation.
        noises: noise scales by batch found so far; new ones are added.
    """
    placement = (choice.used,) * choice.instances
    devices = choice.used * choice.instances
    kind = choice.machine.kind
    largest = int(profile.device_batches(kind, placement)[1])
    least = max(profile.initial_batch, devices)
    grid = np.geomspace(least, max(profile.maximum_batch, least), _BATCHES).astype(int)
    # Also batches that fill every device equally.
    even_batches = [grid // unit * unit for unit in (devices, devices * largest)]
    grid = np.unique(np.concatenate([grid, *even_batches]))
    grid = grid[grid >= least]
    ends = profile.epoch_end_examples
    starts = np.concatenate([[0.0], ends[:-1]])
    best = np.zeros(len(ends))
    for total in map(int, grid):
        batch = split_batch(total, devices, largest)
        times = profile.step_times(kind, placement, batch.device)
        throughput = total / times.accumulated_seconds(batch.accumulation)
        if total not in noises:
            scales = [profile.noise_scale(float(start) + 1e-6, total) for start in starts]
            noises[total] = np.array(scales)
        noise = noises[total]
        best = np.maximum(best, throughput * efficiency(noise, profile.initial_batch, total))
    return best


def switches_usd(choices: Sequence[Choice], ground: Ground, price: FloatArray) -> FloatArray:
    """Return the cost of each change of allocation in $, (A, A): boots and the pause."""
    cost = np.zeros((len(choices), len(choices)))
    for row, old in enumerate(choices):
        for column, new in enumerate(choices):
            if row == column:
                continue
            kept = old.instances if old.machine is new.machine else 0
            extra = max(new.instances - kept, 0)
            cost[row, column] = extra * new.machine.boot_usd + ground.pause_seconds * price[column]
    return cost


def main() -> int:
    """Print the least cost of each application and value of time, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--application", choices=APPLICATIONS, action="append")
    applications = parser.parse_args().application or APPLICATIONS
    data = data_folder("hetero and pollux")
    profiles = read_profiles(data / "hetero", data / "pollux" / "app-profiles")
    print("| application | $/h of waiting | least cost, $ | hours | plan |")
    print("|---|---|---|---|---|")
    for name in applications:
        for value in VALUES_OF_TIME:
            least = limit(profiles[name], CLOUD, value)
            plan = ", then ".join(least.plan)
            hours = least.seconds / 3600
            print(f"| {name} | {value:g} | {least.cost_usd:.2f} | {hours:.2f} | {plan} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
