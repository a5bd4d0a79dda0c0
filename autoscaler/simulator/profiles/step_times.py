"""Measured step times of one application on one kind of device, with interpolation.

Source of the rules: the simulator published with Pollux (OSDI'21). It interpolates measured
placements in the device batch. It interpolates others in nodes, devices and device batch at once,
by a triangulation. Here others are interpolated one axis after the other, over measurements of the
same device batch. That is exact at all measurements, and no worse at sizes left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Final

from autoscaler.domain.errors import CastorError

# Factor beyond the measured nodes and devices a node within which the nearest measurement is used.
NEAREST_WITHIN_FACTOR: Final = 1.25
# Rounding error of devices a node times nodes.
_ROUNDING: Final = 1e-9

Placement = tuple[int, ...]


class Unprofiled(CastorError):
    """Request too far from any measurement. The text names the measured range."""


@dataclass(frozen=True, slots=True)
class ProfiledStepTimes:
    """Seconds of one synchronised micro-step, and the part that waits for other devices."""

    step_seconds: float
    sync_seconds: float

    def accumulated_seconds(self, accumulation: int) -> float:
        """Return seconds of a step with `accumulation` micro-steps before the synchronised one."""
        return self.step_seconds + accumulation * (self.step_seconds - self.sync_seconds)


@dataclass(frozen=True, slots=True)
class StepTable:
    """Step times over device batch (examples per device in a micro-step), piecewise linear.

    Batches are increasing, at least one, each with its times.
    """

    device_batches: tuple[float, ...]
    times: tuple[ProfiledStepTimes, ...]

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest measured device batch."""
        return self.device_batches[0], self.device_batches[-1]

    def at(self, device_batch: float) -> ProfiledStepTimes:
        """Return the times at a device batch; outside the bounds, those of the nearest."""
        batches = self.device_batches
        above = bisect_left(batches, device_batch)
        if above == 0:
            return self.times[0]
        if above == len(batches):
            return self.times[-1]
        below = above - 1
        part = (device_batch - batches[below]) / (batches[above] - batches[below])
        return _mixed(self.times[below], self.times[above], part)


def table_of(times: Mapping[float, ProfiledStepTimes]) -> StepTable:
    """Return a table from times by device batch, in any order."""
    batches = sorted(times)
    return StepTable(tuple(batches), tuple(times[batch] for batch in batches))


def mean_of(times: Sequence[ProfiledStepTimes]) -> ProfiledStepTimes:
    """Return the mean of several measurements."""
    return ProfiledStepTimes(
        sum(step_times.step_seconds for step_times in times) / len(times),
        sum(step_times.sync_seconds for step_times in times) / len(times),
    )


def normalised(placement: Placement) -> Placement:
    """Return the rotation of a placement that sorts first; all rotations are one ring of nodes."""
    return min(placement[i:] + placement[:i] for i in range(len(placement)))


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """Measurements of one application on one kind of device.

    `placements` (devices on each node, normalised) have their own tables. `sizes` (nodes,
    devices), means over placements, serve all other placements.
    """

    application: str
    kind: str
    placements: Mapping[Placement, StepTable]
    sizes: Mapping[tuple[int, int], StepTable]
    _tables: dict[Placement, StepTable] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def table(self, devices_on_nodes: Placement) -> StepTable:
        """Return the step times of a placement over device batch.

        Raises:
            Unprofiled: the placement is beyond the measured range times `NEAREST_WITHIN_FACTOR`.
            ValueError: there is no node, or a node without a device.
        """
        table = self._tables.get(devices_on_nodes)
        if table is None:
            table = self._tables[devices_on_nodes] = self._find(devices_on_nodes)
        return table

    def at(self, devices_on_nodes: Placement, device_batch: float) -> ProfiledStepTimes:
        """Return the step times at a device batch, at most the largest measured one.

        Below the smallest measured batch they are those of the smallest, which is never too short.

        Raises:
            Unprofiled: as `table`, or the device batch exceeds the largest and may not fit.
        """
        table = self.table(devices_on_nodes)
        if not 0 < device_batch <= table.device_batches[-1]:
            smallest, largest = table.bounds
            raise Unprofiled(
                f"{self._place(devices_on_nodes)}: device batch {device_batch:g}: "
                f"measured are {smallest:g} to {largest:g}"
            )
        return table.at(device_batch)

    def _find(self, devices_on_nodes: Placement) -> StepTable:
        if not devices_on_nodes or min(devices_on_nodes) < 1:
            raise ValueError(f"devices_on_nodes={devices_on_nodes}: each node has at least one")
        measured = self.placements.get(normalised(devices_on_nodes))
        if measured is not None:
            return measured
        table = self._interpolated(len(devices_on_nodes), sum(devices_on_nodes))
        if table is None:
            raise Unprofiled(f"{self._place(devices_on_nodes)}: {self._hull()}")
        return table

    def _interpolated(self, nodes: int, devices: int) -> StepTable | None:
        """Return the table of a size between its neighbours in nodes, at equal devices a node.

        It is linear in the logarithm of nodes, since synchronisation grows about so. None: out of
        range.
        """
        counts = sorted({count for count, _ in self.sizes})
        nearest_nodes = _nearest(nodes, counts[0], counts[-1])
        if nearest_nodes is None:
            return None
        below = max(count for count in counts if count <= nearest_nodes)
        above = min(count for count in counts if count >= nearest_nodes)
        low = self._on_nodes(below, devices / nearest_nodes)
        high = self._on_nodes(above, devices / nearest_nodes)
        if low is None or high is None:
            return None
        if below == above:
            return low
        return _between(low, high, log2(nearest_nodes / below) / log2(above / below))

    def _on_nodes(self, nodes: int, devices_a_node: float) -> StepTable | None:
        """Return the table of a measured number of nodes with a mean of devices on each.

        None: out of range.
        """
        counts = sorted(devices for count, devices in self.sizes if count == nodes)
        devices = _nearest(devices_a_node * nodes, counts[0], counts[-1])
        if devices is None:
            return None
        place = bisect_left(counts, devices - _ROUNDING)
        above = self.sizes[nodes, counts[place]]
        if counts[place] <= devices + _ROUNDING:
            return above
        below = self.sizes[nodes, counts[place - 1]]
        part = (devices - counts[place - 1]) / (counts[place] - counts[place - 1])
        return _between(below, above, part)

    def _place(self, devices_on_nodes: Placement) -> str:
        nodes, devices = len(devices_on_nodes), sum(devices_on_nodes)
        return f"{self.application} on {self.kind}: nodes={nodes}, devices={devices}"

    def _hull(self) -> str:
        nodes = [count for count, _ in self.sizes]
        on_each = [devices / count for count, devices in self.sizes]
        return (
            f"measured are {min(nodes)} to {max(nodes)} nodes with {min(on_each):g} to "
            f"{max(on_each):g} devices each, and {NEAREST_WITHIN_FACTOR:g} times that is answered"
        )


def _nearest(value: float, least: float, most: float) -> float | None:
    """Return `value` limited to the bounds; None if it is too far outside."""
    if not least / NEAREST_WITHIN_FACTOR <= value <= most * NEAREST_WITHIN_FACTOR:
        return None
    return min(max(value, least), most)


def _between(low: StepTable, high: StepTable, part: float) -> StepTable | None:
    """Return the table at share `part` from low to high, over the device batches of both.

    None if no batch is common.
    """
    smallest = max(low.device_batches[0], high.device_batches[0])
    largest = min(low.device_batches[-1], high.device_batches[-1])
    if smallest > largest:
        return None
    batches = {*low.device_batches, *high.device_batches}
    return table_of(
        {
            batch: _mixed(low.at(batch), high.at(batch), part)
            for batch in batches
            if smallest <= batch <= largest
        }
    )


def _mixed(low: ProfiledStepTimes, high: ProfiledStepTimes, part: float) -> ProfiledStepTimes:
    return ProfiledStepTimes(
        (1.0 - part) * low.step_seconds + part * high.step_seconds,
        (1.0 - part) * low.sync_seconds + part * high.sync_seconds,
    )
