"""How long a job takes with machines to itself: what fairness measures a run by."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from autoscaler.domain.goodput import BatchBounds
from autoscaler.goodput.batching import split_batch
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.step_times import Unprofiled
from autoscaler.simulator.training import TrainingSettings
from autoscaler.simulator.truth import MachineKind


@dataclass(frozen=True, slots=True)
class Request:
    """What the owner of a rigid job asks for: devices, and a batch within the bounds of a kind."""

    devices: int
    batch: int
    bounds: BatchBounds


def exclusive_seconds(
    profile: Profile,
    request: Request,
    machines: Mapping[str, Equipment],
    settings: TrainingSettings,
) -> float | None:
    """Seconds of the whole run, alone, on the devices requested and at the batch requested.

    They are packed on as few machines as can be, or are as many of them as were profiled, and it
    starts once. On a pool of several kinds a share of every kind counts: its speed is the mean of
    those on each kind, by their numbers of devices (Gavel, OSDI'20, section 4.1). On machines that
    can be bought it is the fastest kind. None if it was profiled on none of them.
    """
    seconds, weights = [], []
    for shape, devices in _devices_of_machines(machines.values()).items():
        found = _training_seconds(profile, request, shape)
        if found is not None:
            seconds.append(found * settings.slowdown)
            weights.append(devices)
    if not seconds:
        return None
    if all(each.offer.shared for each in machines.values()):
        speed = sum(weight / each for weight, each in zip(weights, seconds, strict=True))
        return settings.pause_seconds + sum(weights) / speed
    return settings.pause_seconds + min(seconds)


def _devices_of_machines(machines: Collection[Equipment]) -> dict[MachineKind, int]:
    """How many devices there are in machines of each shape."""
    found: dict[MachineKind, int] = {}
    for each in machines:
        shape = MachineKind(each.offer.device_kind, each.profile_kind, each.offer.devices)
        found[shape] = found.get(shape, 0) + each.offer.devices
    return found


def _training_seconds(profile: Profile, request: Request, shape: MachineKind) -> float | None:
    kind, machine_devices = shape.profile_kind, shape.devices
    own_maximum = request.bounds.on(shape.device_kind).device_maximum
    for devices in range(min(request.devices, request.batch), 0, -1):
        whole, rest = divmod(devices, machine_devices)
        placement = (machine_devices,) * whole + ((rest,) if rest else ())
        try:
            most = min(own_maximum, int(profile.device_batches(kind, placement)[1]))
            split = split_batch(request.batch, devices, most)
            times = profile.step_times(kind, placement, split.device)
        except Unprofiled:
            continue
        return _steps(profile, request.batch) * times.accumulated_seconds(split.accumulation)
    return None


def _steps(profile: Profile, batch: int) -> float:
    """Steps of the whole run at a batch that never changes."""
    steps, at = 0.0, 0.0
    for end in profile.epoch_end_examples:
        steps += float(end - at) / (batch * profile.efficiency(at, batch))
        at = float(end)
    return steps
