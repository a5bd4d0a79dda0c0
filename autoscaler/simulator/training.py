"""One job's training, as its measured profile says that it goes.

Nothing here waits: `advance` moves the job to a later moment, through as many epochs as fit. What
a trainer decides by itself, its batch, is decided by the code that real trainers use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, StepParameters
from autoscaler.domain.report import Quality, StepObservation, TrainingReport
from autoscaler.domain.snapshot import Truth
from autoscaler.goodput.batching import batch_to_look_at, next_batch_total, split_batch
from autoscaler.simulator.job_training import JobTraining, Member
from autoscaler.simulator.placements import placements_of
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.quirks import Quirks
from autoscaler.simulator.slowdowns import Slowdown, SlowedProfile
from autoscaler.simulator.truth import MachineKind, RigidRun

# How sure a trainer is of its noise scale at best.
_LEAST_NOISE_DEVIATION = 0.05
_NEARLY = 1e-9
# A batch that was not tried before is kept for so long, and so many steps, before another is.
_LOOK_SECONDS = 2.0
_LOOK_STEPS = 3


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How training goes beside what was measured.

    Every change of members, the first start too, holds training up for `pause_seconds`; steps
    take `slowdown` times as long as profiled. Step times and noise scales are told with errors
    of these log standard deviations, drawn by `seed`. `parameter_bytes` is what the profiles do
    not say: the size of the model. `interference` is the share of its speed that a distributed job
    loses while it shares a machine with another (`crowded`). Whoever `fills_batch` trains at the
    largest batch that its devices bear in one step, instead of that of most goodput.
    `slowdowns` change the profiled step times. Reported noise scales are `noise_factor` times the
    true ones, beside their errors.
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
    """Training until `to_seconds`, at one batch and in one epoch; or none, without a batch."""

    to_seconds: float
    progress_examples: float
    batch: Batch | None = None
    steps: float = 0.0


@dataclass(frozen=True, slots=True)
class _Here:
    """Where a job trains: the kinds of device at work, what batch all of them bear, the devices on
    each instance by kind, and the examples in a micro-step that were measured there at most.
    `times` are those of a step and its sync by (device batch, accumulation) and by the number of
    changes of step times before, as they are needed.
    """

    kind: str
    bounds: BatchBounds
    placements: tuple[tuple[str, tuple[int, ...]], ...]
    most_on_a_device: int
    times: dict[tuple[int, int, int], tuple[float, float]] = field(default_factory=dict)


def _look_seconds(step_seconds: float) -> float:
    return max(_LOOK_SECONDS, _LOOK_STEPS * step_seconds)


class Training(JobTraining):
    """The state of one job's training at `now_seconds`."""

    def __init__(
        self,
        profile: Profile,
        bounds: BatchBounds,
        settings: TrainingSettings,
        now_seconds: float,
        requested_batch: int | None = None,
    ) -> None:
        """Prepare a run that adapts its batch, unless it is to keep to the one requested."""
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
        self._untold_seconds: dict[tuple[Batch, int], float] = {}
        self._true_step_seconds: dict[str, dict[int, float]] = {}
        self._here: _Here | None = None
        self._foreseen: tuple[object, tuple[_Stretch, ...]] = (None, ())
        self._next_batches: dict[tuple[int, int, float, int], int] = {}
        self._measured: dict[tuple[int, int], float] = {}
        self._tried: dict[tuple[int, int], float] = {}
        self._looked: set[str] = set()
        self._quality: list[Quality] = []
        self.progress_examples = 0.0

    @property
    def total_examples(self) -> float:
        """Useful examples of the whole run."""
        return self._profile.total_examples

    @property
    def is_complete(self) -> bool:
        """The run is over."""
        return self._is_end(self.progress_examples)

    def train_on(self, members: tuple[Member, ...]) -> None:
        """As `JobTraining` has it; of the stretch before nothing is told any more."""
        if members != self.members:
            self._here = None
            self._untold_seconds.clear()
            self._next_batches.clear()
            self._measured.clear()
            self._tried.clear()
        super().train_on(members)

    def hear(self, throughput: StepParameters | None) -> None:
        """Take over the controller's fit for the devices at work."""
        if throughput != self._throughput:
            self._throughput = throughput
            self._next_batches.clear()

    def completes_before(self, seconds: float) -> float | None:
        """When the run will be over, if that is before `seconds` and nothing changes."""
        for stretch in self._course(seconds):
            if self._is_end(stretch.progress_examples):
                return stretch.to_seconds
        return None

    def advance(self, to_seconds: float) -> None:
        """Let time pass, up to the end of the run."""
        for stretch in self._course(to_seconds):
            self._take(stretch)
        self.now_seconds = to_seconds

    def report(self) -> TrainingReport:
        """What the deciding replica tells now; step times and pauses since the last time.

        There must be members.
        """
        error = self._settings.noise_error * self._random.standard_normal()
        self._noise_factor = float(np.exp(error))
        untold, self._untold_seconds = self._untold_seconds, {}
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
            noise=self._noise_told(self.progress_examples, self._batch_total),
            observations=tuple(self._observation(*same, untold[same]) for same in untold),
            pauses=self._pauses_to_tell(),
            quality=tuple(self._quality),
        )

    def step_seconds(self, batch: Batch, changes: int = 0) -> tuple[float, float]:
        """Return the seconds of a step of the members at `batch`, and of its synchronisation.

        No other job is in the way. Step times have changed `changes` times.
        Members of several kinds, while a job moves, go at the pace of the slowest kind, each
        as if it were alone with its part of the batch.

        Raises:
            Unprofiled: it is too far from anything that was measured.
        """
        here = self._where()
        key = batch.device, batch.accumulation, changes
        if key not in here.times:
            slowest = (0.0, 0.0)
            for kind, placement in here.placements:
                profile = self._slowed.after(changes)
                times = profile.step_times(kind, placement, batch.device)
                whole_seconds = times.accumulated_seconds(batch.accumulation)
                slowest = max(slowest, (whole_seconds, times.sync_seconds))
            slowdown = self._settings.slowdown
            here.times[key] = slowest[0] * slowdown, slowest[1] * slowdown
        return here.times[key]

    @property
    def _crowding(self) -> float:
        """How many times as long steps take because of others."""
        return 1.0 / (1.0 - self._settings.interference) if self.is_crowded else 1.0

    def _split(self, total: int) -> Batch:
        """How a batch is spread."""
        most = self._where().most_on_a_device
        is_lone = self.devices == 1 and total > self.bounds.initial
        if is_lone and self._settings.quirks.lone_accumulation:
            most = min(most, -(-total // 2))
        return split_batch(total, self.devices, most)

    def _where(self) -> _Here:
        """What follows from the members alone."""
        if self._here is None:
            kinds = {each.device_kind for each in self.members}
            on_each = [self.bounds.on(kind) for kind in kinds]
            bounds = min(on_each, key=lambda own: own.device_maximum, default=self.bounds)
            placements = placements_of(self.members, self._profile)
            measured = (self._profile.device_batches(*each)[1] for each in placements)
            most = min(bounds.device_maximum, int(min(measured)))
            self._here = _Here("+".join(sorted(kinds)), bounds, placements, most)
        return self._here

    def _course(self, to_seconds: float) -> tuple[_Stretch, ...]:
        """What happens until then if nothing changes, as it was foreseen if nothing has."""
        of = (
            *(to_seconds, self.now_seconds, self.progress_examples, self.members),
            *(self._throughput, self._noise_factor, self.is_crowded),
        )
        if self._foreseen[0] != of:
            self._foreseen = of, tuple(self._stretches(to_seconds))
        return self._foreseen[1]

    def _stretches(self, to_seconds: float) -> Iterator[_Stretch]:
        """What happens until then if nothing changes. It changes nothing itself."""
        now, progress = self.now_seconds, self.progress_examples
        held_up = self._held_up_seconds if self.members else to_seconds
        if now < min(held_up, to_seconds):
            now = min(held_up, to_seconds)
            yield _Stretch(now, progress)
        total, measured, tried = self._batch_total, dict(self._measured), dict(self._tried)
        looked = not self.members or self._where().kind in self._looked
        while now < to_seconds and not self._is_end(progress):
            wanted = None if looked else self._to_look_at(measured)
            looked = looked or (wanted is None and bool(measured))
            total = wanted or self._next_batch(progress, total, measured)
            batch = self._split(total)
            step_seconds = self.step_seconds(batch, self._slowed.changes(now))[0] * self._crowding
            useful = total * self._profile.efficiency(progress, total)
            end = self._epoch_end(progress)
            needed_seconds = (end - progress) / useful * step_seconds
            lasts_seconds = min(needed_seconds, self._slowed.until(now, to_seconds) - now)
            key = batch.device, batch.accumulation
            if key not in measured:
                look_seconds = _look_seconds(step_seconds) - tried.get(key, 0.0)
                lasts_seconds = min(lasts_seconds, look_seconds)
                tried[key] = tried.get(key, 0.0) + lasts_seconds
                if lasts_seconds == look_seconds:
                    measured[key] = step_seconds
            steps = lasts_seconds / step_seconds
            progress = end if lasts_seconds == needed_seconds else progress + steps * useful
            now += lasts_seconds
            yield _Stretch(now, progress, batch, steps)

    def _take(self, stretch: _Stretch) -> None:
        if stretch.batch is not None:
            self._batch_total = stretch.batch.total
            lasted_seconds = stretch.to_seconds - self.now_seconds
            self._note_tried(stretch.batch, lasted_seconds, stretch.steps)
            same = stretch.batch, self._slowed.changes(self.now_seconds)
            told_seconds = self._untold_seconds.get(same, 0.0)
            self._untold_seconds[same] = told_seconds + lasted_seconds
            self._note_quality(stretch.progress_examples, stretch.batch.total)
        self._steps += stretch.steps
        self.progress_examples = stretch.progress_examples
        self._spend_until(stretch.to_seconds, stretch.batch)

    def _note_tried(self, batch: Batch, seconds: float, steps: float) -> None:
        """A batch counts as measured once it was kept for long enough."""
        key = batch.device, batch.accumulation
        if key in self._measured:
            return
        step_seconds = seconds / steps
        self._tried[key] = self._tried.get(key, 0.0) + seconds
        if self._tried[key] < _look_seconds(step_seconds) * (1 - _NEARLY):
            return
        self._measured[key] = step_seconds
        if self._to_look_at(self._measured) is None:
            self._looked.add(self._where().kind)

    def _to_look_at(self, measured: Mapping[tuple[int, int], float]) -> int | None:
        if self._requested_batch is not None or self._settings.quirks.batch_by_model:
            return None
        if self._throughput is None:
            return None
        return batch_to_look_at(self._where().bounds, self.devices, measured)

    def _note_quality(self, progress_examples: float, batch: int) -> None:
        """The metric at the end of every epoch that this progress passes."""
        ends = self._profile.statistics.epoch_end_examples
        ended = bisect_right(ends, progress_examples * (1 + _NEARLY))
        for epoch in range(len(self._quality), ended):
            metric = self._profile.statistics.metric(epoch, batch)
            if metric is None:
                return
            end = float(self._profile.statistics.epoch_end_examples[epoch])
            self._quality.append(Quality(end, metric))

    def truth(self, machines: Sequence[MachineKind], most_devices: int) -> Truth:
        """What the profile says of the run at its requested batch, on machines of these kinds."""
        run = RigidRun(
            profile=self._profile,
            bounds=self.bounds,
            batch=self._requested_batch or self.bounds.initial,
            slowdown=self._settings.slowdown,
            quirks=self._settings.quirks,
        )
        if not self._true_step_seconds:
            self._true_step_seconds = {
                each.device_kind: dict(run.packed_step_seconds(each, most_devices))
                for each in machines
            }
        found = self._true_step_seconds
        left = run.steps_left(self.progress_examples, self._epoch(self.progress_examples))
        if len(found) == 1:
            return Truth(next(iter(found.values())), left)
        return Truth({}, left, kind_step_seconds=found)

    def _next_batch(
        self, progress: float, current: int, measured: Mapping[tuple[int, int], float]
    ) -> int:
        """What a trainer goes on with; it is the same for as long as nothing of this changes."""
        if self._requested_batch is not None:
            return self._requested_batch
        if self._settings.fills_batch:
            full = self.devices * self._where().most_on_a_device
            return min(max(full, self.bounds.initial), self.bounds.maximum)
        key = (self._epoch(progress), current, self._noise_factor, len(measured))
        if key not in self._next_batches:
            self._next_batches[key] = next_batch_total(
                current,
                self._where().bounds,
                self._throughput,
                self._noise_told(progress, current),
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

    def _noise_told(self, progress: float, batch: int) -> NoiseScale:
        square, variance = self._profile.gradients(progress, batch)
        deviation = max(self._settings.noise_error, _LEAST_NOISE_DEVIATION)
        told = variance * self._noise_factor * self._settings.noise_factor
        return NoiseScale(self.bounds.initial, square, told, deviation)
