"""Simulated training of one job, as its measured profile predicts.

`advance` moves the job to a later time without waiting, over as many epochs as fit. The batch is
chosen by the code of real trainers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, StepParameters
from autoscaler.domain.report import Quality, StepObservation, TrainingReport
from autoscaler.domain.snapshot import GroundTruth
from autoscaler.goodput.batch_choice import batch_to_look_at, next_batch_total, split_batch
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.profiles.slowdowns import Slowdown, SlowedProfile
from autoscaler.simulator.profiles.step_times import Unprofiled
from autoscaler.simulator.training.base import JobTraining, Member
from autoscaler.simulator.training.published_compat import Quirks
from autoscaler.simulator.training.truth import MachineKind, RigidRun

# Smallest standard deviation of the logarithm of a reported noise scale.
_LEAST_NOISE_DEVIATION = 0.05
_NEARLY = 1e-9
# Least seconds and steps at a new batch before the next change.
_LOOK_SECONDS = 2.0
_LOOK_STEPS = 3


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of training beyond the measured profile.

    Attributes:
        pause_seconds: pause of training at every change of members, the first start too.
        slowdown: factor on profiled step times.
        step_error: standard deviation of the logarithm of reported step times.
        noise_error: standard deviation of the logarithm of reported noise scales.
        parameter_bytes: size of the model, which profiles omit.
        interference: share of its speed that a distributed job loses while it is `crowded`.
        fills_batch: whether to fill devices in one step, instead of maximising goodput.
        slowdowns: changes of the profiled step times.
        noise_factor: factor on reported noise scales.
    """

    pause_seconds: float = 1.0
    slowdown: float = 1.0
    step_error: float = 0.0
    noise_error: float = 0.0
    parameter_bytes: int = 100_000_000
    interference: float = 0.0
    fills_batch: bool = False
    slowdowns: tuple[Slowdown, ...] = ()
    noise_factor: float = 1.0
    seed: int = 0
    quirks: Quirks = field(default_factory=Quirks)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Training until `to_seconds` at one batch in one epoch; without a batch it is paused."""

    to_seconds: float
    progress_examples: float
    batch: Batch | None = None
    steps: float = 0.0


@dataclass(frozen=True, slots=True)
class _MemberProperties:
    """Properties of the present members.

    `bounds` hold for all kinds of device at work. `placements` are (kind, devices on each
    instance). `most_on_a_device` is the largest measured micro-step in examples. `times` caches
    seconds of a step and of its synchronisation, by device batch, accumulation and number of
    changes of step times.
    """

    kind: str
    bounds: BatchBounds
    placements: tuple[tuple[str, tuple[int, ...]], ...]
    most_on_a_device: int
    times: dict[tuple[int, int, int], tuple[float, float]] = field(default_factory=dict)


def _least_seconds_at_batch(step_seconds: float) -> float:
    return max(_LOOK_SECONDS, _LOOK_STEPS * step_seconds)


class Training(JobTraining):
    """Simulated training of one job by its profile, up to `now_seconds`."""

    def __init__(
        self,
        profile: Profile,
        bounds: BatchBounds,
        settings: TrainingSettings,
        now_seconds: float,
        requested_batch: int | None = None,
    ) -> None:
        """Prepare a run that adapts its batch, or keeps `requested_batch` if given."""
        super().__init__(bounds, settings.pause_seconds, now_seconds)
        self._profile = profile
        self._slowed = SlowedProfile(profile, settings.slowdowns, now_seconds)
        self._requested_batch = requested_batch
        self._settings = settings
        self._random = np.random.default_rng(settings.seed)
        self._throughput: StepParameters | None = None
        self._noise_factor = 1.0
        self._batch_total = requested_batch or bounds.initial
        self._steps = 0.0
        self._unreported_seconds: dict[tuple[Batch, int], float] = {}
        self._true_step_seconds: dict[str, dict[int, float]] = {}
        self._member_properties: _MemberProperties | None = None
        self._cached_stretches: tuple[object, tuple[_Stretch, ...]] = (None, ())
        self._next_batches: dict[tuple[int, int, float, int], int] = {}
        self._measured: dict[tuple[int, int], float] = {}
        self._tried: dict[tuple[int, int], float] = {}
        self._explored_kinds: set[str] = set()
        self._quality: list[Quality] = []
        self.progress_examples = 0.0
        self._saved = 0.0, self._steps

    @property
    def total_examples(self) -> float:
        """Useful examples of the whole run."""
        return self._profile.total_examples

    @property
    def is_complete(self) -> bool:
        """Whether the run is over."""
        return self._is_end(self.progress_examples)

    def train_on(self, members: tuple[Member, ...]) -> None:
        """Set the instances at work, and drop unreported measurements of the old ones."""
        if members != self.members:
            self._member_properties = None
            self._unreported_seconds.clear()
            self._next_batches.clear()
            self._measured.clear()
            self._tried.clear()
        super().train_on(members)

    def save(self) -> None:
        """Save the present progress as a checkpoint."""
        self._saved = self.progress_examples, self._steps

    def rewind(self) -> None:
        """Return to the progress of the last checkpoint, or to the beginning without one."""
        self.progress_examples, self._steps = self._saved

    def hear(self, throughput: StepParameters | None) -> None:
        """Receive the controller's throughput fit for the devices at work."""
        if throughput != self._throughput:
            self._throughput = throughput
            self._next_batches.clear()

    def completes_before(self, seconds: float) -> float | None:
        """Return the end of the run without changes, if before `seconds`; else None."""
        for stretch in self._stretches_until(seconds):
            if self._is_end(stretch.progress_examples):
                return stretch.to_seconds
        return None

    def advance(self, to_seconds: float) -> None:
        """Advance the training, at most to the end of the run."""
        for stretch in self._stretches_until(to_seconds):
            self._apply_stretch(stretch)
        self.now_seconds = to_seconds

    def report(self) -> TrainingReport:
        """Return the deciding replica's report with news since the last; members must exist."""
        error = self._settings.noise_error * self._random.standard_normal()
        self._noise_factor = float(np.exp(error))
        unreported, self._unreported_seconds = self._unreported_seconds, {}
        return TrainingReport(
            step=int(self._steps),
            epoch=self._epoch(self.progress_examples),
            progress_examples=self.progress_examples,
            total_examples=self.total_examples,
            batch=self._split(self._batch_total),
            bounds=self.bounds,
            replicas=len(self.members),
            devices=self.devices,
            learning_rate=0.0,
            parameter_bytes=self._settings.parameter_bytes,
            noise=self._reported_noise(self.progress_examples, self._batch_total),
            observations=tuple(
                self._observation(*configuration, unreported[configuration])
                for configuration in unreported
            ),
            pauses=self._pauses_to_tell(),
            quality=tuple(self._quality),
        )

    def step_seconds(self, batch: Batch, changes: int = 0) -> tuple[float, float]:
        """Return seconds of a step at `batch` and of its synchronisation, without interference.

        Step times have changed `changes` times. Members of several kinds, while a job moves, run
        at the pace of the slowest kind, each as if alone with its part of the batch.

        Raises:
            Unprofiled: the placement or batch is too far from any measurement.
        """
        here = self._properties_of_members()
        key = batch.device, batch.accumulation, changes
        if key not in here.times:
            slowest = (0.0, 0.0)
            for kind, placement in here.placements:
                profile = self._slowed.after(changes)
                times = profile.step_times(kind, placement, batch.device)
                kind_seconds = times.accumulated_seconds(batch.accumulation)
                slowest = max(slowest, (kind_seconds, times.sync_seconds))
            slowdown = self._settings.slowdown
            here.times[key] = slowest[0] * slowdown, slowest[1] * slowdown
        return here.times[key]

    @property
    def _crowding(self) -> float:
        """Factor on step times by interference of other jobs."""
        return 1.0 / (1.0 - self._settings.interference) if self.is_crowded else 1.0

    def _split(self, total: int) -> Batch:
        """Return the distribution of a batch over devices and micro-steps."""
        largest = self._properties_of_members().most_on_a_device
        is_lone = self.devices == 1 and total > self.bounds.initial
        if is_lone and self._settings.quirks.lone_accumulation:
            largest = min(largest, -(-total // 2))
        return split_batch(total, self.devices, largest)

    def _properties_of_members(self) -> _MemberProperties:
        """Return the cached properties of the members."""
        if self._member_properties is None:
            kinds = {member.device_kind for member in self.members}
            bounds_by_kind = [self.bounds.on(kind) for kind in kinds]
            bounds = min(
                bounds_by_kind,
                key=lambda kind_bounds: kind_bounds.device_maximum,
                default=self.bounds,
            )
            placements = _placements_of(self.members, self._profile)
            measured = (self._profile.device_batches(*placement)[1] for placement in placements)
            largest = min(bounds.device_maximum, int(min(measured)))
            self._member_properties = _MemberProperties(
                "+".join(sorted(kinds)), bounds, placements, largest
            )
        return self._member_properties

    def _stretches_until(self, to_seconds: float) -> tuple[_Stretch, ...]:
        """Return the stretches until `to_seconds` without changes, cached."""
        key = (
            *(to_seconds, self.now_seconds, self.progress_examples, self.members),
            *(self._throughput, self._noise_factor, self.is_crowded),
        )
        if self._cached_stretches[0] != key:
            self._cached_stretches = key, tuple(self._stretches(to_seconds))
        return self._cached_stretches[1]

    def _stretches(self, to_seconds: float) -> Iterator[_Stretch]:
        """Yield the stretches until `to_seconds` without changing the state."""
        now, progress = self.now_seconds, self.progress_examples
        paused_until = self._held_up_seconds if self.members else to_seconds
        if now < min(paused_until, to_seconds):
            now = min(paused_until, to_seconds)
            yield _Stretch(now, progress)
        total, measured, tried = self._batch_total, dict(self._measured), dict(self._tried)
        is_explored = (
            not self.members or self._properties_of_members().kind in self._explored_kinds
        )
        while now < to_seconds and not self._is_end(progress):
            batch_to_try = None if is_explored else self._batch_to_try(measured)
            is_explored = is_explored or (batch_to_try is None and bool(measured))
            total = batch_to_try or self._next_batch(progress, total, measured)
            batch = self._split(total)
            step_seconds = self.step_seconds(batch, self._slowed.changes(now))[0] * self._crowding
            useful = total * self._profile.efficiency(progress, total)
            end = self._epoch_end(progress)
            needed_seconds = (end - progress) / useful * step_seconds
            lasts_seconds = min(needed_seconds, self._slowed.until(now, to_seconds) - now)
            key = batch.device, batch.accumulation
            if key not in measured:
                seconds_to_measure = _least_seconds_at_batch(step_seconds) - tried.get(key, 0.0)
                lasts_seconds = min(lasts_seconds, seconds_to_measure)
                tried[key] = tried.get(key, 0.0) + lasts_seconds
                if lasts_seconds == seconds_to_measure:
                    measured[key] = step_seconds
            steps = lasts_seconds / step_seconds
            progress = end if lasts_seconds == needed_seconds else progress + steps * useful
            now += lasts_seconds
            yield _Stretch(now, progress, batch, steps)

    def _apply_stretch(self, stretch: _Stretch) -> None:
        if stretch.batch is not None:
            self._batch_total = stretch.batch.total
            lasted_seconds = stretch.to_seconds - self.now_seconds
            self._record_tried(stretch.batch, lasted_seconds, stretch.steps)
            configuration = stretch.batch, self._slowed.changes(self.now_seconds)
            earlier_seconds = self._unreported_seconds.get(configuration, 0.0)
            self._unreported_seconds[configuration] = earlier_seconds + lasted_seconds
            self._record_quality(stretch.progress_examples, stretch.batch.total)
        self._steps += stretch.steps
        self.progress_examples = stretch.progress_examples
        self._spend_until(stretch.to_seconds, stretch.batch)

    def _record_tried(self, batch: Batch, seconds: float, steps: float) -> None:
        """Record the time at a batch, which counts as measured after long enough."""
        key = batch.device, batch.accumulation
        if key in self._measured:
            return
        step_seconds = seconds / steps
        self._tried[key] = self._tried.get(key, 0.0) + seconds
        if self._tried[key] < _least_seconds_at_batch(step_seconds) * (1 - _NEARLY):
            return
        self._measured[key] = step_seconds
        if self._batch_to_try(self._measured) is None:
            self._explored_kinds.add(self._properties_of_members().kind)

    def _batch_to_try(self, measured: Mapping[tuple[int, int], float]) -> int | None:
        if self._requested_batch is not None or self._settings.quirks.batch_by_model:
            return None
        if self._throughput is None:
            return None
        return batch_to_look_at(self._properties_of_members().bounds, self.devices, measured)

    def _record_quality(self, progress_examples: float, batch: int) -> None:
        """Record the metric at the end of every epoch up to this progress."""
        ends = self._profile.statistics.epoch_end_examples
        ended = bisect_right(ends, progress_examples * (1 + _NEARLY))
        for epoch in range(len(self._quality), ended):
            metric = self._profile.statistics.metric(epoch, batch)
            if metric is None:
                return
            end = float(self._profile.statistics.epoch_end_examples[epoch])
            self._quality.append(Quality(end, metric))

    def truth(self, machines: Sequence[MachineKind], most_devices: int) -> GroundTruth:
        """Return the profile's ground truth of the run at its requested batch.

        `machines` are the shapes of machines in the pool, and `most_devices` its largest number of
        devices.
        """
        run = RigidRun(
            profile=self._profile,
            bounds=self.bounds,
            batch=self._requested_batch or self.bounds.initial,
            slowdown=self._settings.slowdown,
            quirks=self._settings.quirks,
        )
        if not self._true_step_seconds:
            self._true_step_seconds = {
                machine.device_kind: dict(run.packed_step_seconds(machine, most_devices))
                for machine in machines
            }
        step_seconds_by_kind = self._true_step_seconds
        steps_left = run.steps_left(self.progress_examples, self._epoch(self.progress_examples))
        if len(step_seconds_by_kind) == 1:
            return GroundTruth(next(iter(step_seconds_by_kind.values())), steps_left)
        return GroundTruth({}, steps_left, kind_step_seconds=step_seconds_by_kind)

    def _next_batch(
        self, progress: float, current: int, measured: Mapping[tuple[int, int], float]
    ) -> int:
        """Return the total batch that a trainer chooses next, cached."""
        if self._requested_batch is not None:
            return self._requested_batch
        if self._settings.fills_batch:
            full = self.devices * self._properties_of_members().most_on_a_device
            return min(max(full, self.bounds.initial), self.bounds.maximum)
        key = (self._epoch(progress), current, self._noise_factor, len(measured))
        if key not in self._next_batches:
            self._next_batches[key] = next_batch_total(
                current,
                self._properties_of_members().bounds,
                self._throughput,
                self._reported_noise(progress, current),
                (len(self.members), self.devices),
                None if self._settings.quirks.batch_by_model else measured,
            )
        return self._next_batches[key]

    def _observation(self, batch: Batch, changes: int, seconds: float) -> StepObservation:
        step_seconds, sync_seconds = self.step_seconds(batch, changes)
        error = float(np.exp(self._settings.step_error * self._random.standard_normal()))
        if not self._settings.quirks.interference_untold:
            waits_seconds = step_seconds * (self._crowding - 1.0)
            step_seconds, sync_seconds = step_seconds + waits_seconds, sync_seconds + waits_seconds
        return self._observed(batch, (step_seconds, sync_seconds), seconds, error)

    def _is_end(self, progress: float) -> bool:
        return progress >= self.total_examples * (1 - _NEARLY)

    def _epoch(self, progress: float) -> int:
        ends = self._profile.statistics.epoch_end_examples
        return min(bisect_right(ends, progress * (1 + _NEARLY)), len(ends) - 1)

    def _epoch_end(self, progress: float) -> float:
        return float(self._profile.statistics.epoch_end_examples[self._epoch(progress)])

    def _reported_noise(self, progress: float, batch: int) -> NoiseScale:
        square, variance = self._profile.gradients(progress, batch)
        deviation = max(self._settings.noise_error, _LEAST_NOISE_DEVIATION)
        reported_variance = variance * self._noise_factor * self._settings.noise_factor
        return NoiseScale(self.bounds.initial, square, reported_variance, deviation)


def _placements_of(
    members: Sequence[Member], profile: Profile
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (kind of device, devices on each instance) for each profiled placement.

    A job that moves between instance sizes may hold a placement that was not profiled. Then the
    instances of each size count as a placement.

    Raises:
        Unprofiled: the instances of one size were not profiled.
    """
    by_kind: dict[str, tuple[int, ...]] = {}
    for member in members:
        by_kind[member.profile_kind] = (*by_kind.get(member.profile_kind, ()), member.devices)
    return tuple(
        part
        for kind, placement in sorted(by_kind.items())
        for part in _profiled_parts(profile, kind, placement)
    )


def _profiled_parts(
    profile: Profile, kind: str, placement: tuple[int, ...]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    sizes = sorted(set(placement))
    try:
        profile.device_batches(kind, placement)
    except Unprofiled:
        if len(sizes) == 1:
            raise
        for size in sizes:
            yield kind, (size,) * placement.count(size)
        return
    yield kind, placement
