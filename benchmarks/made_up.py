"""Synthetic applications on synthetic clouds: cases for `elastic_cloud.py` and `held_out.py`.

Each case is a folder with an application's step times and gradient statistics in the published
format, and an `offers.yaml` of real instance types at catalogue prices. The truth is not a formula
of the product. Seconds of a micro-step are a power of its examples. A synchronisation is a ring's,
within an instance or over the network. Each kind of device has its own speed for each application.
Sizes and rows deviate by a few percent. `NATURES` lists the cases.

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
# Log deviations of a row, of all rows of a size, and of a kind's speed for an application.
_ROW_ERROR, _SIZE_ERROR, _KIND_ERROR = 0.03, 0.04, 0.35
_WITHIN_BYTES_PER_SECOND = {"a100-40": 2e11, "v100": 6e10, "h100": 3e11}
_PLAIN_WITHIN_BYTES_PER_SECOND = 6e9
_LATENCY_SECONDS = 2e-3


@dataclass(frozen=True)
class Nature:
    """Properties of an application, and the instances that it may use.

    Attributes:
        hours: duration at the initial batch on one instance of the first type.
        batch: initial batch, and the factor to the largest.
        device_batch: largest batch on 16 GB, in initial batches.
        step_seconds: seconds of the initial batch on a T4.
        overhead: fixed cost of a micro-step, in examples.
        sync: transfer time of the gradients over 10 Gbit/s, in `step_seconds`.
        noise: points (fraction of the run, noise scale in initial batches), interpolated by
            logarithm.
        offers: instance types.
        bytes_bound: fraction of a micro-step that is bound by memory bandwidth.
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
    """True speed of one application on one kind of device."""

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
        """Most examples that fit on a device."""
        fits = self.nature.device_batch * self.nature.batch[0] * self.kind.memory_bytes / 16e9
        return max(int(fits), 2)

    def rows(self, nodes: int, devices: int, network: float) -> Iterator[tuple[int, float, float]]:
        """Yield device batch, step and synchronisation seconds of a size."""
        size_error = self.random.lognormal(0.0, _SIZE_ERROR)
        sync = self._sync_seconds(nodes, devices, network) * size_error
        for batch in np.unique(np.geomspace(1, self.largest, _DEVICE_BATCHES).astype(int)):
            example_seconds = (
                self.seconds_per_example * batch * (batch / self.largest) ** self.bend
            )
            compute = (self.overhead_seconds + example_seconds) * self.random.lognormal(
                0.0, _ROW_ERROR
            )
            step_seconds = (compute**self.overlap + sync**self.overlap) ** (1.0 / self.overlap)
            yield int(batch), step_seconds, max(step_seconds - compute, 0.0)

    def _sync_seconds(self, nodes: int, devices: int, network: float) -> float:
        """Return the seconds of a ring all-reduce within an instance and over the network."""
        if devices == 1:
            return 0.0
        within = _WITHIN_BYTES_PER_SECOND.get(self.kind.name, _PLAIN_WITHIN_BYTES_PER_SECOND)
        devices_per_node = devices // nodes
        seconds = 2 * self.bytes_moved * (devices_per_node - 1) / devices_per_node / within
        if nodes > 1:
            seconds += 2 * self.bytes_moved * (nodes - 1) / nodes / (0.7 * network)
        return seconds + _LATENCY_SECONDS * float(np.log2(devices))


def write_case(folder: Path, name: str, nature: Nature, seed: int) -> None:
    """Write one case to a folder of its name."""
    random = np.random.default_rng([seed, *name.encode()])
    types = [instance_type(offer) for offer in nature.offers]
    truths = {listed.device_kind: _truth(nature, listed.device_kind, random) for listed in types}
    profile_folder = folder / name / name
    profile_folder.mkdir(parents=True, exist_ok=True)
    for kind, truth in truths.items():
        _write_steps(
            profile_folder, truth, [listed for listed in types if listed.device_kind == kind]
        )
    _write_noise(profile_folder, nature, truths[types[0].device_kind], types[0], random)
    lines = [
        f"  - {{type: {listed.name}, max_instances: {_most_instances(listed)}}}"
        for listed in types
    ]
    (folder / name / "offers.yaml").write_text("offers:\n" + "\n".join(lines) + "\n")


def _most_instances(offered: InstanceType) -> int:
    """Return the most instances of a type."""
    return min(_MOST_DEVICES // offered.devices, max(_NODES))


def _truth(nature: Nature, kind: str, random: np.random.Generator) -> _Truth:
    """Return the true speed on a kind: between its arithmetic and memory speed, over a T4's."""
    device, t4 = device_kind(kind), device_kind("t4")
    flops = device.flops_per_second / t4.flops_per_second
    memory = device.memory_bandwidth_bytes_per_second / t4.memory_bandwidth_bytes_per_second
    speed = memory**nature.bytes_bound * flops ** (1.0 - nature.bytes_bound)
    speed *= random.lognormal(0.0, _KIND_ERROR)
    seconds = nature.step_seconds / nature.batch[0] / speed
    slower_host = speed ** random.uniform(0.3, 1.0)
    overhead = nature.overhead * nature.step_seconds / nature.batch[0] / slower_host * speed**0.5
    return _Truth(
        nature=nature,
        kind=device,
        seconds_per_example=seconds,
        overhead_seconds=overhead,
        bend=random.uniform(-0.1, 0.1),
        overlap=random.uniform(1.0, 3.0),
        bytes_moved=nature.sync * nature.step_seconds * 1.25e9 / 2,
        random=random,
    )


def _write_steps(folder: Path, truth: _Truth, types: Sequence[InstanceType]) -> None:
    """Write the step times of all sizes of a kind of device."""
    columns = ("local_bsz", "step_time", "sync_time")
    placements, sizes = [], []
    for devices, network in {
        listed.devices: listed.network_bytes_per_second for listed in types
    }.items():
        for used in range(1, devices + 1):
            for times in truth.rows(1, used, network):
                placements.append((used, *times))
        for nodes in _NODES:
            if nodes > 1 and nodes * devices <= _MOST_DEVICES:
                for times in truth.rows(nodes, nodes * devices, network):
                    sizes.append((nodes, nodes * devices, *times))
    unique = {(row[0], row[1]): row for row in placements}
    unique_sizes = {row[:3]: row for row in sizes}
    kind = truth.kind.name
    _write(folder / f"placements-{kind}.csv", ("placement", *columns), unique.values())
    _write(
        folder / f"scalability-{kind}.csv",
        ("num_nodes", "num_replicas", *columns),
        unique_sizes.values(),
    )


def _write_noise(
    folder: Path, nature: Nature, truth: _Truth, first: InstanceType, random: np.random.Generator
) -> None:
    """Write the gradient statistics, for a run of `hours` on one instance at the initial batch."""
    initial, times = nature.batch
    examples_per_device = -(-initial // first.devices)
    steps = -(-examples_per_device // truth.largest)
    seconds = truth.overhead_seconds * steps + truth.seconds_per_example * examples_per_device
    total = nature.hours * 3600.0 / seconds
    ends = np.arange(1, _EPOCHS + 1) / _EPOCHS
    points, levels = zip(*nature.noise, strict=True)
    middles = ends - 0.5 / _EPOCHS
    noise = np.exp(np.interp(middles, points, np.log(levels)))
    noise = noise * random.lognormal(0.0, 0.05, len(noise))
    for doubling in range(int(np.log2(times)) + 1):
        batch = initial * 2**doubling
        variances = noise * random.lognormal(0.0, 0.03)
        rows = [
            (end * total, 1.0, variance) for end, variance in zip(ends, variances, strict=True)
        ]
        _write(folder / f"validation-{batch}.csv", ("progress", "grad_sqr", "grad_var"), rows)


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file with a header."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


def main() -> int:
    """Write all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name, nature in NATURES.items():
        write_case(arguments.folder, name, nature, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
