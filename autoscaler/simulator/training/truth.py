"""Ground truth of a run from a measured profile, for oracles: step times and steps left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autoscaler.domain.goodput import BatchBounds
from autoscaler.goodput.batch_choice import split_batch
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.step_times import Unprofiled
from autoscaler.simulator.training.published_compat import Quirks


@dataclass(frozen=True, slots=True, order=True)
class MachineKind:
    """Shape of a machine: kind of its devices, the kind as profiled, and their number."""

    device_kind: str
    profile_kind: str
    devices: int


@dataclass(frozen=True, slots=True)
class RigidRun:
    """Run at one batch; its steps take `slowdown` times as long as profiled."""

    profile: Profile
    bounds: BatchBounds
    batch: int
    slowdown: float
    quirks: Quirks

    def packed_step_seconds(
        self, machine: MachineKind, most_devices: int
    ) -> Iterator[tuple[int, float]]:
        """Yield (devices, seconds of a step) on as few machines as possible, while profiled."""
        kind, bounds = machine.profile_kind, self.bounds.on(machine.device_kind)
        for devices in range(1, min(most_devices, self.batch) + 1):
            full_machines, remainder = divmod(devices, machine.devices)
            placement = (machine.devices,) * full_machines + ((remainder,) if remainder else ())
            try:
                largest_batch = int(self.profile.device_batches(kind, placement)[1])
                largest_batch = min(largest_batch, bounds.device_maximum)
                if devices == 1 and self.quirks.lone_accumulation:
                    largest_batch = min(largest_batch, -(-self.batch // 2))
                split = split_batch(self.batch, devices, largest_batch)
                times = self.profile.step_times(kind, placement, split.device)
            except Unprofiled:
                return
            yield devices, times.accumulated_seconds(split.accumulation) * self.slowdown

    def steps_left(self, progress_examples: float, epoch: int) -> float:
        """Return the steps from this progress, in `epoch`, to the end."""
        progress, steps = progress_examples, 0.0
        epoch_ends = self.profile.epoch_end_examples[epoch:]
        if self.quirks.epoch_uncounted:
            progress, epoch_ends = float(epoch_ends[0]), epoch_ends[1:]
            if not len(epoch_ends):
                return 1.0
        for end in epoch_ends:
            steps += float(end - progress) / (
                self.batch * self.profile.efficiency(progress, self.batch)
            )
            progress = float(end)
        return steps
