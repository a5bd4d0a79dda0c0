"""Write made-up applications on made-up clouds: cases for `elastic_cloud.py` and `held_out.py`.

Each case is a folder: an application's step times and gradient statistics in the published format,
and an `offers.yaml` of real types of instances at the prices of the catalogue. What a device does
is no formula of the product's: seconds of a micro-step bend with its examples, a sync is a ring's
(within an instance, or over the network), each kind of device has a speed of its own for each
application, sizes and rows are off by a few percent. `NATURES` says what cases are like.

    python benchmarks/made_up.py FOLDER [--seed 1]
    python benchmarks/elastic_cloud.py --cases FOLDER
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscaler.market.catalogue import InstanceType, instance_type
from autoscaler.market.device_kinds import DeviceKind, device_kind

FloatArray = NDArray[np.float64]

_MOST_DEVICES = 32
_NODES = (1, 2, 3, 4, 6, 8, 12, 16)
_EPOCHS = 60
_DEVICE_BATCHES = 8
# Log deviations: of one row, of all rows of a size, of a kind's speed for an application.
_ROW_ERROR, _SIZE_ERROR, _KIND_ERROR = 0.03, 0.04, 0.35
_WITHIN_BYTES_PER_SECOND = {"a100-40": 2e11, "v100": 6e10, "h100": 3e11}
_PLAIN_WITHIN_BYTES_PER_SECOND = 6e9
_LATENCY_SECONDS = 2e-3


@dataclass(frozen=True)
class Nature:
    """What an application is like, and what it may use.

    Attributes:
        hours: of the whole run at its initial batch on one instance of the first type.
        batch: initial, and by what the largest is more.
        device_batch: the largest on 16 GB, in initial batches.
        step_seconds: of the initial batch on a T4.
        overhead: of a micro-step, in examples.
        sync: what moving the gradients over 10 Gbit/s takes, in `step_seconds`.
        noise: the noise scale in initial batches at shares of the run, between which it goes on
            evenly in its logarithm.
        offers: types of instances.
        bytes_bound: how much of a micro-step is moving memory.
    """

    hours: float
    batch: tuple[int, int]
    device_batch: float
    step_seconds: float
    overhead: float
    sync: float
    noise: Sequence[tuple[float, float]]
    offers: Sequence[str]
    bytes_bound: float = 0.5


_GROWS = ((0.0, 1.0), (1.0, 6.0))
_FLAT = ((0.0, 4.0), (1.0, 4.0))
_LATE = ((0.0, 1.0), (0.69, 1.5), (0.7, 15.0), (1.0, 18.0))
_STEPS = ((0.0, 0.1), (0.02, 2.0), (0.33, 2.5), (0.34, 8.0), (0.66, 9.0), (0.67, 25.0), (1, 25.0))
_FALLS = ((0.0, 20.0), (0.5, 8.0), (1.0, 3.0))
_QUIET = ((0.0, 0.05), (1.0, 0.3))

NATURES = {
    "compute": Nature(6, (128, 32), 2, 0.8, 5, 0.03, _GROWS, ("g4dn.12xlarge", "p4d.24xlarge")),
    "talks": Nature(5, (64, 32), 2, 0.3, 10, 3.0, _GROWS, ("g4dn.12xlarge", "p3.16xlarge")),
    "crowded": Nature(8, (256, 16), 0.06, 2.0, 1, 0.5, _STEPS, ("g5.12xlarge", "p4d.24xlarge")),
    "flat": Nature(4, (32, 64), 4, 0.25, 8, 0.3, _FLAT, ("g4dn.xlarge", "g5.xlarge", "g6.xlarge")),
    "late": Nature(
        12, (128, 64), 1, 0.5, 10, 0.4, _LATE, ("g4dn.12xlarge", "g5.12xlarge", "p4d.24xlarge")
    ),
    "minutes": Nature(0.15, (128, 16), 2, 0.3, 10, 0.3, _GROWS, ("g4dn.xlarge", "p3.8xlarge")),
    "short": Nature(
        0.6, (64, 32), 2, 0.4, 10, 0.2, _STEPS, ("g4dn.12xlarge", "g5.12xlarge", "p3.8xlarge")
    ),
    "day": Nature(
        30, (256, 64), 1, 0.6, 15, 0.2, _STEPS, ("p3.8xlarge", "p4d.24xlarge", "p5.48xlarge")
    ),
    "memory": Nature(
        6, (32, 32), 1, 0.6, 2, 0.3, _GROWS, ("g6.12xlarge", "g4dn.12xlarge", "p3.8xlarge"), 1.0
    ),
    "arithmetic": Nature(
        6, (32, 32), 1, 0.6, 2, 0.3, _GROWS, ("g6.12xlarge", "g4dn.12xlarge", "p3.8xlarge"), 0.0
    ),
    "falls": Nature(
        5, (64, 64), 2, 0.4, 10, 0.3, _FALLS, ("g4dn.xlarge", "g4dn.12xlarge", "p3.16xlarge")
    ),
    "quiet": Nature(
        3, (64, 32), 2, 0.3, 10, 0.3, _QUIET, ("g4dn.xlarge", "g5.xlarge", "p3.2xlarge")
    ),
    "many": Nature(
        10,
        (128, 64),
        1,
        0.5,
        10,
        0.3,
        _STEPS,
        ("g4dn.12xlarge", "g5.12xlarge", "p3.16xlarge", "p4d.24xlarge"),
    ),
    "tiny": Nature(0.08, (32, 16), 4, 0.1, 20, 0.5, _FLAT, ("g4dn.xlarge", "g6.xlarge")),
}


@dataclass(frozen=True)
class _Truth:
    """What one application does on one kind of device."""

    nature: Nature
    kind: DeviceKind
    seconds_per_example: float
    overhead_seconds: float
    bend: float
    overlap: float
    bytes_moved: float
    random: np.random.Generator = field(compare=False)

    @property
    def largest(self) -> int:
        """Examples that fit on a device."""
        fits = self.nature.device_batch * self.nature.batch[0] * self.kind.memory_bytes / 16e9
        return max(int(fits), 2)

    def rows(self, nodes: int, devices: int, network: float) -> Iterator[tuple[int, float, float]]:
        """Device batch, step and sync seconds of a size."""
        of_size = self.random.lognormal(0.0, _SIZE_ERROR)
        sync = self._sync_seconds(nodes, devices, network) * of_size
        for batch in np.unique(np.geomspace(1, self.largest, _DEVICE_BATCHES).astype(int)):
            bent = self.seconds_per_example * batch * (batch / self.largest) ** self.bend
            compute = (self.overhead_seconds + bent) * self.random.lognormal(0.0, _ROW_ERROR)
            both = (compute**self.overlap + sync**self.overlap) ** (1.0 / self.overlap)
            yield int(batch), both, max(both - compute, 0.0)

    def _sync_seconds(self, nodes: int, devices: int, network: float) -> float:
        if devices == 1:
            return 0.0
        within = _WITHIN_BYTES_PER_SECOND.get(self.kind.name, _PLAIN_WITHIN_BYTES_PER_SECOND)
        shares = devices // nodes
        seconds = 2 * self.bytes_moved * (shares - 1) / shares / within
        if nodes > 1:
            seconds += 2 * self.bytes_moved * (nodes - 1) / nodes / (0.7 * network)
        return seconds + _LATENCY_SECONDS * float(np.log2(devices))


def write_case(folder: Path, name: str, nature: Nature, seed: int) -> None:
    """One case, in a folder of its name."""
    random = np.random.default_rng([seed, *name.encode()])
    types = [instance_type(offer) for offer in nature.offers]
    truths = {each.device_kind: _truth(nature, each.device_kind, random) for each in types}
    place = folder / name / name
    place.mkdir(parents=True, exist_ok=True)
    for kind, truth in truths.items():
        _write_steps(place, truth, [each for each in types if each.device_kind == kind])
    _write_noise(place, nature, truths[types[0].device_kind], types[0], random)
    lines = [f"  - {{type: {each.name}, max_instances: {_most(each)}}}" for each in types]
    (folder / name / "offers.yaml").write_text("offers:\n" + "\n".join(lines) + "\n")


def _most(offered: InstanceType) -> int:
    return min(_MOST_DEVICES // offered.devices, max(_NODES))


def _truth(nature: Nature, kind: str, random: np.random.Generator) -> _Truth:
    """Its speed is between that of arithmetic and that of memory, beside a T4's."""
    known, base = device_kind(kind), device_kind("t4")
    flops = known.flops_per_second / base.flops_per_second
    memory = known.memory_bandwidth_bytes_per_second / base.memory_bandwidth_bytes_per_second
    speed = memory**nature.bytes_bound * flops ** (1.0 - nature.bytes_bound)
    speed *= random.lognormal(0.0, _KIND_ERROR)
    seconds = nature.step_seconds / nature.batch[0] / speed
    slower_host = speed ** random.uniform(0.3, 1.0)
    overhead = nature.overhead * nature.step_seconds / nature.batch[0] / slower_host * speed**0.5
    return _Truth(
        nature=nature,
        kind=known,
        seconds_per_example=seconds,
        overhead_seconds=overhead,
        bend=random.uniform(-0.1, 0.1),
        overlap=random.uniform(1.0, 3.0),
        bytes_moved=nature.sync * nature.step_seconds * 1.25e9 / 2,
        random=random,
    )


def _write_steps(place: Path, truth: _Truth, types: Sequence[InstanceType]) -> None:
    columns = ("local_bsz", "step_time", "sync_time")
    placements, sizes = [], []
    for devices, network in {
        each.devices: each.network_bytes_per_second for each in types
    }.items():
        for used in range(1, devices + 1):
            for times in truth.rows(1, used, network):
                placements.append((used, *times))
        for nodes in _NODES:
            if nodes > 1 and nodes * devices <= _MOST_DEVICES:
                for times in truth.rows(nodes, nodes * devices, network):
                    sizes.append((nodes, nodes * devices, *times))
    unique = {(row[0], row[1]): row for row in placements}
    several = {row[:3]: row for row in sizes}
    kind = truth.kind.name
    _write(place / f"placements-{kind}.csv", ("placement", *columns), unique.values())
    _write(
        place / f"scalability-{kind}.csv",
        ("num_nodes", "num_replicas", *columns),
        several.values(),
    )


def _write_noise(
    place: Path, nature: Nature, truth: _Truth, first: InstanceType, random: np.random.Generator
) -> None:
    """So many useful examples as one instance does at the initial batch in the hours."""
    initial, times = nature.batch
    share = -(-initial // first.devices)
    steps = -(-share // truth.largest)
    seconds = truth.overhead_seconds * steps + truth.seconds_per_example * share
    total = nature.hours * 3600.0 / seconds
    ends = np.arange(1, _EPOCHS + 1) / _EPOCHS
    at, levels = zip(*nature.noise, strict=True)
    middle = ends - 0.5 / _EPOCHS
    noise = np.exp(np.interp(middle, at, np.log(levels)))
    noise = noise * random.lognormal(0.0, 0.05, len(noise))
    for doubling in range(int(np.log2(times)) + 1):
        batch = initial * 2**doubling
        variances = noise * random.lognormal(0.0, 0.03)
        rows = [(p * total, 1.0, v) for p, v in zip(ends, variances, strict=True)]
        _write(place / f"validation-{batch}.csv", ("progress", "grad_sqr", "grad_var"), rows)


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def main() -> int:
    """Write every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for name, nature in NATURES.items():
        write_case(asked.folder, name, nature, asked.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
