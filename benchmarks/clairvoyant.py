"""The least that a job can cost on an elastic cloud: a plan that knows everything beforehand.

It knows every step time of the profile and the gradient statistics of the whole run, has no
uncertainty, orders instances exactly so early that they are there when they are wanted, and pays
what everybody pays: whole instances, their boots, and a pause at each change. Dynamic programming
over pieces of the run, each within an epoch; what one piece is held at is one allocation.

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
from autoscaler.goodput.batching import split_batch
from autoscaler.goodput.efficiency import efficiency
from autoscaler.market.catalogue import MINIMUM_BILLED_SECONDS, instance_type
from autoscaler.simulator.profiles import Profile, read_profiles
from autoscaler.simulator.step_times import Unprofiled
from autoscaler.spec.offers_file import OffersFile

FloatArray = NDArray[np.float64]

VALUES_OF_TIME = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
APPLICATIONS = ("bert", "cifar10", "deepspeech2", "yolov3", "imagenet")
# A run is cut into so many pieces at least, an epoch into whole ones.
_LEAST_PIECES = 40
# Of an offer that nothing limits, and from the order of an instance until it trains.
_MOST = 64
_BOOT_SECONDS = 180.0
# Batches tried between the least and the largest.
_BATCHES = 60


@dataclass(frozen=True)
class Machine:
    """What can be bought, its kind as profiled, and how many there are at most."""

    offer: Offer
    kind: str
    most: int

    @property
    def usd_per_hour(self) -> float:
        """Of one instance."""
        return float(self.offer.usd_per_hour)

    @property
    def boot_usd(self) -> float:
        """What the boot of one instance costs."""
        return self.offer.usd_per_second * self.offer.boot_seconds


@dataclass(frozen=True)
class Ground:
    """The cloud and what changes cost beside boots."""

    machines: Sequence[Machine]
    pause_seconds: float = 1.0


@dataclass(frozen=True)
class Choice:
    """One allocation: `instances` of a machine, `used` devices of each."""

    machine: Machine
    instances: int
    used: int

    @property
    def usd_per_second(self) -> float:
        """Of all instances."""
        return self.instances * self.machine.usd_per_hour / 3600.0


@dataclass(frozen=True)
class Limit:
    """The least cost: dollars and value of time x duration, and how it is reached."""

    cost_usd: float
    seconds: float
    plan: tuple[str, ...]


def machine(type_name: str, kind: str, most: int) -> Machine:
    """A type of the catalogue, on-demand at its price there."""
    known = instance_type(type_name)
    offer = Offer(
        id=known.name,
        provider=known.provider,
        instance_type=known.name,
        zone=known.region,
        purchase=Purchase.ON_DEMAND,
        devices=known.devices,
        device_kind=known.device_kind,
        usd_per_hour=known.price.usd_per_hour,
        boot_seconds=_BOOT_SECONDS,
        network_bytes_per_second=known.network_bytes_per_second,
        minimum_billed_seconds=MINIMUM_BILLED_SECONDS,
    )
    return Machine(offer, kind, most)


def ground_of(offers: OffersFile, profile: Profile) -> Ground:
    """The cloud of a file of offers, of each as much as its own limits allow and was profiled."""
    machines = []
    for offer in offers.offers:
        kind = offers.profile_kinds.get(offer.id, offer.device_kind)
        own = [limit for limit in offers.limits if limit.offers == frozenset([offer.id])]
        most = min((int(limit.maximum / limit.use(offer)) for limit in own), default=_MOST)
        machines.append(Machine(offer, kind, _most_profiled(profile, kind, offer.devices, most)))
    return Ground(tuple(each for each in machines if each.most))


def _most_profiled(profile: Profile, kind: str, devices: int, most: int) -> int:
    """How many whole nodes at most, from one on."""
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
    """The least of dollars + value of time ($/h) x duration, over all plans."""
    value = value_of_time / 3600.0
    choices = tuple(choices_of(profile, ground))
    price = np.array([choice.usd_per_second for choice in choices])
    seconds = piece_seconds(profile, choices)
    switch = switches_usd(choices, ground, price + value)
    ahead = np.zeros(len(choices))
    best: list[NDArray[np.int64]] = []
    for piece in range(len(seconds) - 1, -1, -1):
        by_next = switch + ahead[None, :]
        best.append(by_next.argmin(axis=1))
        ahead = seconds[piece] * (price + value) + by_next.min(axis=1)
    starts = np.array([choice.machine.offer.boot_seconds for choice in choices])
    start = (starts + ground.pause_seconds) * (price + value) + ahead
    return _followed(choices, seconds, best[::-1], ground, (int(start.argmin()), start.min()))


def _followed(
    choices: Sequence[Choice],
    seconds: FloatArray,
    best: Sequence[NDArray[np.int64]],
    ground: Ground,
    start: tuple[int, float],
) -> Limit:
    at, cost = start
    total = choices[at].machine.offer.boot_seconds + ground.pause_seconds
    plan: list[str] = []
    for piece, following in enumerate(best):
        choice = choices[at]
        words = f"{choice.instances} x {choice.used} of {choice.machine.offer.id}"
        if not plan or plan[-1] != words:
            plan.append(words)
        total += seconds[piece, at]
        changed = int(following[at])
        total += ground.pause_seconds * (changed != at)
        at = changed
    return Limit(float(cost), float(total), tuple(plan))


def choices_of(profile: Profile, ground: Ground) -> list[Choice]:
    """Every allocation that was profiled: whole instances, and a part of a single one."""
    found = []
    for machine in ground.machines:
        parts = [Choice(machine, 1, used) for used in range(1, machine.offer.devices)]
        devices = machine.offer.devices
        whole = [Choice(machine, count, devices) for count in range(1, machine.most + 1)]
        for choice in (*parts, *whole):
            if _is_profiled(profile, machine.kind, (choice.used,) * choice.instances):
                found.append(choice)
    return found


def piece_seconds(profile: Profile, choices: Sequence[Choice]) -> FloatArray:
    """Seconds of each piece at each allocation, at the batch that is best there: (P, A)."""
    ends = profile.epoch_end_examples
    starts = np.concatenate([[0.0], ends[:-1]])
    cuts = max(1, -(-_LEAST_PIECES // len(ends)))
    noises: dict[int, FloatArray] = {}
    table = np.stack([_epoch_goodput(profile, choice, noises) for choice in choices], axis=1)
    whole = (ends - starts)[:, None] / table
    return np.repeat(whole / cuts, cuts, axis=0)


def _epoch_goodput(profile: Profile, choice: Choice, noises: dict[int, FloatArray]) -> FloatArray:
    """Return useful examples a second in each epoch, (E,).

    `noises` are the noise scales by batch that are known already; others are added.
    """
    placement = (choice.used,) * choice.instances
    devices = choice.used * choice.instances
    kind = choice.machine.kind
    largest = int(profile.device_batches(kind, placement)[1])
    least = max(profile.initial_batch, devices)
    grid = np.geomspace(least, max(profile.maximum_batch, least), _BATCHES).astype(int)
    # Those that fill every device alike, too.
    even = [grid // unit * unit for unit in (devices, devices * largest)]
    grid = np.unique(np.concatenate([grid, *even]))
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
    """$ of going from each allocation to each, (A, A): boots of what is new, and the pause."""
    cost = np.zeros((len(choices), len(choices)))
    for i, old in enumerate(choices):
        for j, new in enumerate(choices):
            if i == j:
                continue
            kept = old.instances if old.machine is new.machine else 0
            extra = max(new.instances - kept, 0)
            cost[i, j] = extra * new.machine.boot_usd + ground.pause_seconds * price[j]
    return cost


def main() -> int:
    """Print the limit of every application and value of time, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--application", choices=APPLICATIONS, action="append")
    wanted = parser.parse_args().application or APPLICATIONS
    data = data_folder("hetero and pollux")
    profiles = read_profiles(data / "hetero", data / "pollux" / "app-profiles")
    print("| application | $/h of waiting | least cost, $ | hours | plan |")
    print("|---|---|---|---|---|")
    for name in wanted:
        for value in VALUES_OF_TIME:
            found = limit(profiles[name], CLOUD, value)
            plan = ", then ".join(found.plan)
            hours = found.seconds / 3600
            print(f"| {name} | {value:g} | {found.cost_usd:.2f} | {hours:.2f} | {plan} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
