"""Program memory of a measured application that has run on everything on offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autoscaler.domain.goodput import BatchBounds, NoiseCurve
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.step_times import Unprofiled

# Size of the model, which profiles omit and no prediction here uses.
_PARAMETER_BYTES = 100_000_000
# Steps of each observation: enough for a precise mean.
_STEPS = 1000
_MOST_INSTANCES = 64


def recollection(
    profile: Profile, equipment: Iterable[Equipment], batch: BatchSpec
) -> ProgramMemory:
    """Return the program memory of a run on every profiled size, for a job of this batch."""
    machines = [machine for machine in equipment if machine.profile_kind in profile.kinds]
    observations = {
        (
            observation.device_kind,
            observation.instances,
            observation.devices,
            observation.device_batch,
        ): observation
        for machine in machines
        for observation in _observations(profile, machine)
    }
    ends = profile.epoch_end_examples
    begins = (0.0, *ends[:-1].tolist())
    return ProgramMemory(
        program=profile.name,
        jobs=1,
        recent_jobs=(profile.name,),
        updated_seconds=0.0,
        initial_batch=profile.initial_batch,
        parameter_bytes=_PARAMETER_BYTES,
        bounds=_bounds(profile, machines, batch),
        total_examples=profile.total_examples,
        observations=tuple(observations.values()),
        noise=NoiseCurve(
            begins,
            tuple(profile.noise_scale(progress, profile.initial_batch) for progress in begins),
        ),
    )


def _bounds(profile: Profile, machines: Iterable[Equipment], batch: BatchSpec) -> BatchBounds:
    maxima = {
        machine.offer.device_kind: int(profile.device_batches(machine.profile_kind, (1,))[1])
        for machine in machines
    }
    if batch.device_maximum is not None:
        maxima = {kind: min(most, batch.device_maximum) for kind, most in maxima.items()}
    most = profile.maximum_batch if batch.maximum is None else batch.maximum
    return BatchBounds(
        initial=profile.initial_batch,
        maximum=max(min(most, profile.maximum_batch), profile.initial_batch),
        device_maximum=min(maxima.values(), default=profile.initial_batch),
        adaptive=True,
        kind_maxima=tuple(sorted(maxima.items())),
    )


def _observations(profile: Profile, machine: Equipment) -> Iterator[StepObservation]:
    devices = machine.offer.devices
    placements: list[tuple[int, ...]] = [(used,) for used in range(1, devices)]
    placements += [(devices,) * count for count in range(1, _MOST_INSTANCES + 1)]
    for placement in placements:
        try:
            yield from _observations_at(profile, machine, placement)
        except Unprofiled:
            continue


def _observations_at(
    profile: Profile, machine: Equipment, placement: tuple[int, ...]
) -> Iterator[StepObservation]:
    """Yield observations at the smallest, the middle and the largest measured device batch."""
    smallest, largest = profile.device_batches(machine.profile_kind, placement)
    for device_batch in sorted(
        {int(smallest), int((smallest * largest) ** 0.5), int(largest)} - {0}
    ):
        times = profile.step_times(machine.profile_kind, placement, device_batch)
        yield StepObservation(
            device_kind=machine.offer.device_kind,
            instances=len(placement),
            devices=sum(placement),
            device_batch=device_batch,
            accumulation=0,
            step_seconds=times.step_seconds,
            sync_seconds=times.sync_seconds,
            steps=_STEPS,
        )
