"""A study as it is simulated: its trials, each with its curve and pace, and how it searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import Objective
from autoscaler.goodput.batching import split_batch
from autoscaler.simulator.curves import Curve, number_of
from autoscaler.simulator.gradients import GradientStatistics
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.searches import AsynchronousHalving, SynchronousHalving
from autoscaler.simulator.step_times import MeasuredSteps, StepTable, StepTimes

# A batch that any number of devices splits nearly evenly.
_TABLE_BATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class BatchOfTrials:
    """The hyper-parameter that is a trial's batch, whose value `initial` stands for the least one
    that the application was measured at. None: every trial has that one.
    """

    parameter: str | None = None
    initial: float | None = None

    def of(self, curve: Curve, profile: Profile) -> int:
        """The batch of one trial in examples.

        Raises:
            SpecError: the hyper-parameter is no number above 0.
        """
        if self.parameter is None:
            return profile.initial_batch
        value = number_of(curve, self.parameter)
        examples = value if self.initial is None else profile.initial_batch * value / self.initial
        return max(round(examples), 1)


@dataclass(frozen=True)
class StudyTrial:
    """One trial to be: its curve, and the application whose steps it takes, at its own batch.

    `profile` has what it reports as the metric of its epochs, and all examples are useful ones.
    Steps take `slowdown` times what the application's do.
    """

    curve: Curve
    profile: Profile
    slowdown: float


@dataclass(frozen=True)
class SimulatedStudy:
    """A study, of `trials` as its rule has.

    `objective` is of all of it; that of each job is `job_objective`. Trials of an instance that
    comes from another trial start after `handover_seconds`, on others after `start_seconds`.
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
    curves: Sequence[Curve], application: Profile, batch: BatchOfTrials, kind: str
) -> tuple[StudyTrial, ...]:
    """Trials with these curves that scale as an application does.

    The seconds of the curves are those on one device of `kind`. An epoch has as many examples for
    all, so many that the median trial takes the steps that were measured.

    Raises:
        SpecError: a trial's batch is no number.
    """
    batches = [batch.of(curve, application) for curve in curves]
    step = [_lone_step_seconds(application, kind, each) for each in batches]
    rates = [own / seconds for own, seconds in zip(batches, step, strict=True)]
    made = [c.seconds_an_epoch * rate for c, rate in zip(curves, rates, strict=True)]
    examples = float(np.median(made))
    return tuple(
        StudyTrial(curve, _profile(curve, application, own, examples), own_made / examples)
        for curve, own, own_made in zip(curves, batches, made, strict=True)
    )


def _lone_step_seconds(application: Profile, kind: str, batch: int) -> float:
    most = int(application.device_batches(kind, (1,))[1])
    split = split_batch(batch, 1, most)
    times = application.step_times(kind, (1,), split.device)
    return times.accumulated_seconds(split.accumulation)


def _profile(curve: Curve, application: Profile, batch: int, examples: float) -> Profile:
    """Epochs whose examples are as their seconds on one device."""
    an_epoch = examples / curve.seconds_an_epoch
    count = len(curve.epochs)
    statistics = GradientStatistics(
        batches=(batch,),
        epoch_end_examples=tuple(seconds * an_epoch for seconds in curve.end_seconds),
        squares=((1.0,),) * count,
        variances=((1.0,),) * count,
        metrics=tuple((value,) for value in curve.values),
    )
    return Profile(application.name, application.steps, statistics)


def application_of(name: str, speedup: Mapping[int, float], kinds: Sequence[str]) -> Profile:
    """An application that `speedup` (devices -> times as fast as one) says of, on these kinds.

    Between the numbers of devices speed-ups are linear, and instances have no say.

    Raises:
        SpecError: one device is not among them, or a speed-up is more than the devices.
    """
    if speedup.get(1) != 1.0:
        raise SpecError("1 must be there, with a speed-up of 1", "speedup")
    for devices, times in speedup.items():
        if not 0 < times <= devices:
            message = f"{times:g} is not above 0 and at most {devices}"
            raise SpecError(message, f"speedup: {devices}")
    known = sorted(speedup)
    sizes: dict[tuple[int, int], StepTable] = {}
    for devices in range(1, known[-1] + 1):
        times = float(np.interp(devices, known, [speedup[each] for each in known]))
        whole = StepTimes(1.0 / times, 1.0 / times - 1.0 / devices)
        table = StepTable((-(-_TABLE_BATCH // devices),), (whole,))
        sizes |= {(nodes, devices): table for nodes in range(1, devices + 1)}
    steps = {kind: MeasuredSteps(name, kind, {}, sizes) for kind in kinds}
    return Profile(name, steps, GradientStatistics((_TABLE_BATCH,), (1.0,), ((1.0,),), ((1.0,),)))
