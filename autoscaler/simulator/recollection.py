"""A measured application as the memory of a program that has run on everything it is offered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autoscaler.domain.goodput import BatchBounds, NoiseCurve
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.program import ProgramMemory
from autoscaler.domain.report import StepObservation
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.step_times import Unprofiled

# What profiles do not say: the size of the model. It is a part of no prediction of what they do.
_PARAMETER_BYTES = 100_000_000
# As long as it takes to know a step's mean.
_STEPS = 1000
_MOST_INSTANCES = 64


def recollection(
    profile: Profile, equipment: Iterable[Equipment], batch: BatchSpec
) -> ProgramMemory:
    """What a run on every size that was profiled would have taught, for a job of this batch."""
    known = [each for each in equipment if each.profile_kind in profile.kinds]
    observations = {
        (each.device_kind, each.instances, each.devices, each.device_batch): each
        for machine in known
        for each in _observations(profile, machine)
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
        bounds=_bounds(profile, known, batch),
        total_examples=profile.total_examples,
        observations=tuple(observations.values()),
        noise=NoiseCurve(
            begins, tuple(profile.noise_scale(at, profile.initial_batch) for at in begins)
        ),
    )


def _bounds(profile: Profile, known: Iterable[Equipment], batch: BatchSpec) -> BatchBounds:
    maxima = {
        each.offer.device_kind: int(profile.device_batches(each.profile_kind, (1,))[1])
        for each in known
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
            yield from _at(profile, machine, placement)
        except Unprofiled:
            continue


def _at(
    profile: Profile, machine: Equipment, placement: tuple[int, ...]
) -> Iterator[StepObservation]:
    """At the least, the largest and the middle device batch that were measured there."""
    least, most = profile.device_batches(machine.profile_kind, placement)
    for device_batch in sorted({int(least), int((least * most) ** 0.5), int(most)} - {0}):
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
