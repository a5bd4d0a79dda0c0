"""What a measured profile says of a run, for oracles: step times, and the steps left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autoscaler.domain.goodput import BatchBounds
from autoscaler.goodput.batching import split_batch
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.quirks import Quirks
from autoscaler.simulator.step_times import Unprofiled


@dataclass(frozen=True, slots=True, order=True)
class MachineKind:
    """What its machines are: the kind of their devices, as which it was profiled, how many."""

    device_kind: str
    profile_kind: str
    devices: int


@dataclass(frozen=True, slots=True)
class RigidRun:
    """A run at one batch; its steps take `slowdown` times as long as profiled."""

    profile: Profile
    bounds: BatchBounds
    batch: int
    slowdown: float
    quirks: Quirks

    def packed_step_seconds(
        self, machine: MachineKind, most_devices: int
    ) -> Iterator[tuple[int, float]]:
        """Devices and seconds of a step on as few machines as can be, as far as was profiled."""
        kind, bounds = machine.profile_kind, self.bounds.on(machine.device_kind)
        for devices in range(1, min(most_devices, self.batch) + 1):
            whole, rest = divmod(devices, machine.devices)
            placement = (machine.devices,) * whole + ((rest,) if rest else ())
            try:
                most = int(self.profile.device_batches(kind, placement)[1])
                most = min(most, bounds.device_maximum)
                if devices == 1 and self.quirks.lone_accumulation:
                    most = min(most, -(-self.batch // 2))
                split = split_batch(self.batch, devices, most)
                times = self.profile.step_times(kind, placement, split.device)
            except Unprofiled:
                return
            yield devices, times.accumulated_seconds(split.accumulation) * self.slowdown

    def steps_left(self, progress_examples: float, epoch: int) -> float:
        """Steps from this progress, which is in `epoch`, to the end."""
        at, steps = progress_examples, 0.0
        left = self.profile.epoch_end_examples[epoch:]
        if self.quirks.epoch_uncounted:
            at, left = float(left[0]), left[1:]
            if not len(left):
                return 1.0
        for end in left:
            steps += float(end - at) / (self.batch * self.profile.efficiency(at, self.batch))
            at = float(end)
        return steps
