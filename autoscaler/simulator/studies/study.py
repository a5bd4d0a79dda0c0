"""Simulated studies: trials with their curves and speeds, and the rule of search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.goodput.batch_choice import split_batch
from autoscaler.simulator.profiles.curves import RecordedCurve, number_of
from autoscaler.simulator.profiles.gradients import GradientStatistics
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.step_times import MeasuredSteps, ProfiledStepTimes, StepTable
from autoscaler.simulator.studies.searches import AsynchronousHalving, SynchronousHalving

# Batch that any number of devices splits nearly evenly.
_TABLE_BATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class BatchOfTrials:
    """Hyper-parameter that is a trial's batch; None: all trials have the initial batch.

    Its value `initial` stands for the smallest batch at which the application was measured; None:
    values are in examples.
    """

    parameter: str | None = None
    initial: float | None = None

    def of(self, curve: RecordedCurve, profile: Profile) -> int:
        """Return the batch of one trial in examples.

        Raises:
            SpecError: the hyper-parameter is not a number above 0.
        """
        if self.parameter is None:
            return profile.initial_batch
        value = number_of(curve, self.parameter)
        examples = value if self.initial is None else profile.initial_batch * value / self.initial
        return max(round(examples), 1)


@dataclass(frozen=True)
class StudyTrial:
    """One future trial: its curve, and its application's step times at the trial's batch.

    `profile` has the reported values as metrics of its epochs; all examples are useful. Steps take
    `slowdown` times as long as the application's.
    """

    curve: RecordedCurve
    profile: Profile
    slowdown: float


@dataclass(frozen=True)
class SimulatedStudy:
    """Simulated study with its trials and the rule of search.

    `objective` applies to the whole study, `job_objective` to each job. Trials start after
    `handover_seconds` on an instance of another trial, and after `start_seconds` on other
    instances; None: as other jobs.
    """

    name: str
    trials: tuple[StudyTrial, ...]
    rule: SynchronousHalving | AsynchronousHalving
    objective: Objective = Objective()
    job_objective: Objective = Objective()
    instances: InstanceBounds = field(default_factory=InstanceBounds)
    maximize: bool = False
    start_seconds: float | None = None
    handover_seconds: float | None = None
    features: tuple[Mapping[str, float], ...] = field(default=())


def trials_of(
    curves: Sequence[RecordedCurve], application: Profile, batch: BatchOfTrials, kind: str
) -> tuple[StudyTrial, ...]:
    """Return trials with these curves that scale as an application does.

    Seconds of the curves are on one device of `kind`. All trials have equally many examples an
    epoch, so that the median trial has the measured step times.

    Raises:
        SpecError: a trial's batch is not a number.
    """
    batches = [batch.of(curve, application) for curve in curves]
    step_seconds = [_lone_step_seconds(application, kind, batch_size) for batch_size in batches]
    rates = [
        batch_size / seconds for batch_size, seconds in zip(batches, step_seconds, strict=True)
    ]
    all_examples_an_epoch = [
        curve.seconds_an_epoch * rate for curve, rate in zip(curves, rates, strict=True)
    ]
    examples = float(np.median(all_examples_an_epoch))
    return tuple(
        StudyTrial(
            curve, _profile(curve, application, batch_size, examples), examples_an_epoch / examples
        )
        for curve, batch_size, examples_an_epoch in zip(
            curves, batches, all_examples_an_epoch, strict=True
        )
    )


def _lone_step_seconds(application: Profile, kind: str, batch: int) -> float:
    largest = int(application.device_batches(kind, (1,))[1])
    split = split_batch(batch, 1, largest)
    times = application.step_times(kind, (1,), split.device)
    return times.accumulated_seconds(split.accumulation)


def _profile(curve: RecordedCurve, application: Profile, batch: int, examples: float) -> Profile:
    """Return a profile whose epochs have examples in proportion to their seconds on one device."""
    examples_per_second = examples / curve.seconds_an_epoch
    count = len(curve.epochs)
    statistics = GradientStatistics(
        batches=(batch,),
        epoch_end_examples=tuple(seconds * examples_per_second for seconds in curve.end_seconds),
        squares=((1.0,),) * count,
        variances=((1.0,),) * count,
        metrics=tuple((value,) for value in curve.values),
    )
    return Profile(application.name, application.steps, statistics)


def application_of(name: str, speedup: Mapping[int, float], kinds: Sequence[str]) -> Profile:
    """Return an application with stated speed-ups (devices -> speed over one device).

    Speed-ups are linear between the numbers of devices, and do not depend on instances.

    Raises:
        SpecError: one device is missing, or a speed-up exceeds the number of devices.
    """
    if speedup.get(1) != 1.0:
        raise SpecError("1 must be there, with a speed-up of 1", "speedup")
    for devices, times in speedup.items():
        if not 0 < times <= devices:
            message = f"{times:g} is not above 0 and at most {devices}"
            raise SpecError(message, f"speedup: {devices}")
    counts = sorted(speedup)
    sizes: dict[tuple[int, int], StepTable] = {}
    for devices in range(1, counts[-1] + 1):
        times = float(np.interp(devices, counts, [speedup[count] for count in counts]))
        step_times = ProfiledStepTimes(1.0 / times, 1.0 / times - 1.0 / devices)
        table = StepTable((-(-_TABLE_BATCH // devices),), (step_times,))
        sizes |= {(nodes, devices): table for nodes in range(1, devices + 1)}
    steps = {kind: MeasuredSteps(name, kind, {}, sizes) for kind in kinds}
    return Profile(name, steps, GradientStatistics((_TABLE_BATCH,), (1.0,), ((1.0,),), ((1.0,),)))
