"""Duration of a job with machines to itself, the reference for fairness."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from autoscaler.domain.goodput import BatchBounds
from autoscaler.goodput.batch_choice import split_batch
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.step_times import Unprofiled
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.training.truth import MachineKind


@dataclass(frozen=True, slots=True)
class RigidRequest:
    """Request of a rigid job's owner: devices, total batch, and batch bounds."""

    devices: int
    batch: int
    bounds: BatchBounds


def exclusive_seconds(
    profile: Profile,
    request: RigidRequest,
    machines: Mapping[str, Equipment],
    settings: TrainingSettings,
) -> float | None:
    """Return seconds of the whole run alone, on the requested devices and batch.

    Devices are packed on as few machines as possible, limited to the profiled number, and the job
    starts once. On a pool of several kinds the speed is the mean over kinds, weighted by their
    devices (Gavel, OSDI'20, section 4.1). On machines that can be bought it is the fastest kind's.
    None if no kind was profiled.
    """
    seconds, weights = [], []
    for shape, devices in _devices_of_machines(machines.values()).items():
        training_seconds = _training_seconds(profile, request, shape)
        if training_seconds is not None:
            seconds.append(training_seconds * settings.slowdown)
            weights.append(devices)
    if not seconds:
        return None
    if all(machine.offer.shared for machine in machines.values()):
        speed = sum(
            weight / kind_seconds for weight, kind_seconds in zip(weights, seconds, strict=True)
        )
        return settings.pause_seconds + sum(weights) / speed
    return settings.pause_seconds + min(seconds)


def _devices_of_machines(machines: Collection[Equipment]) -> dict[MachineKind, int]:
    """Return the number of devices in machines of each shape."""
    devices: dict[MachineKind, int] = {}
    for machine in machines:
        shape = MachineKind(machine.offer.device_kind, machine.profile_kind, machine.offer.devices)
        devices[shape] = devices.get(shape, 0) + machine.offer.devices
    return devices


def _training_seconds(profile: Profile, request: RigidRequest, shape: MachineKind) -> float | None:
    kind, machine_devices = shape.profile_kind, shape.devices
    device_maximum = request.bounds.on(shape.device_kind).device_maximum
    for devices in range(min(request.devices, request.batch), 0, -1):
        full_machines, remainder = divmod(devices, machine_devices)
        placement = (machine_devices,) * full_machines + ((remainder,) if remainder else ())
        try:
            largest = min(device_maximum, int(profile.device_batches(kind, placement)[1]))
            split = split_batch(request.batch, devices, largest)
            times = profile.step_times(kind, placement, split.device)
        except Unprofiled:
            continue
        return _steps(profile, request.batch) * times.accumulated_seconds(split.accumulation)
    return None


def _steps(profile: Profile, batch: int) -> float:
    """Return the steps of the whole run at a constant batch."""
    steps, progress = 0.0, 0.0
    for end in profile.epoch_end_examples:
        steps += float(end - progress) / (batch * profile.efficiency(progress, batch))
        progress = float(end)
    return steps
