"""One job's training, as its measured profile says that it goes.

Nothing here waits: `advance` moves the job to a later moment, through as many epochs as fit. What
a trainer decides by itself, its batch, is decided by the code that real trainers use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, ThroughputParameters
from autoscaler.domain.report import MembershipPause, StepObservation, TrainingReport
from autoscaler.domain.snapshot import Truth
from autoscaler.goodput.batching import next_batch_total, split_batch
from autoscaler.goodput.efficiency import efficiency
from autoscaler.simulator.profiles import Profile
from autoscaler.simulator.quirks import Quirks
from autoscaler.simulator.step_times import Unprofiled

# How sure a trainer is of its noise scale at best.
_LEAST_NOISE_DEVIATION = 0.05
_NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How training goes beside what was measured.

    Every change of members, the first start too, holds training up for `pause_seconds`; steps
    take `slowdown` times as long as profiled. Step times and noise scales are told with errors
    of these log standard deviations, drawn by `seed`. `parameter_bytes` is what the profiles do
    not say: the size of the model.
    """

    pause_seconds: float = 1.0
    slowdown: float = 1.0
    step_error: float = 0.0
    noise_error: float = 0.0
    parameter_bytes: int = 100_000_000
    seed: int = 0
    quirks: Quirks = field(default_factory=Quirks)


@dataclass(frozen=True, slots=True)
class Member:
    """One instance at work: what it is offered as, and as which kind it was profiled."""

    instance: str
    offer: str
    device_kind: str
    profile_kind: str
    devices: int


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch in which nothing changed. `batch` is None while training is held up."""

    from_seconds: float
    to_seconds: float
    offer: str
    instances: int
    devices: int
    batch: Batch | None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Training until `to_seconds`, at one batch and in one epoch; or none, without a batch."""

    to_seconds: float
    progress_examples: float
    batch: Batch | None = None
    steps: float = 0.0


class Training:
    """The state of one job's training at `now_seconds`; `spans` are all that lies behind it."""

    def __init__(
        self,
        profile: Profile,
        bounds: BatchBounds,
        settings: TrainingSettings,
        now_seconds: float,
        requested_batch: int | None = None,
    ) -> None:
        """Prepare a run that adapts its batch, unless it is to keep to the one requested."""
        self._profile = profile
        self._requested_batch = requested_batch
        self._changed_seconds: float | None = None
        self._trained_on = 0
        self._settings = settings
        self._random = np.random.default_rng(settings.seed)
        self._throughput: ThroughputParameters | None = None
        self._noise_factor = 1.0
        self._held_up_seconds = now_seconds
        self._batch_total = requested_batch or bounds.initial
        self._steps = 0.0
        self._untold_seconds: dict[Batch, float] = {}
        self._true_step_seconds: dict[int, float] = {}
        self._next_batches: dict[tuple[int, int, float], int] = {}
        self._untold_pauses: list[MembershipPause] = []
        self.bounds = bounds
        self.now_seconds = now_seconds
        self.progress_examples = 0.0
        self.members: tuple[Member, ...] = ()
        self.spans: list[Span] = []
        self.starts = 0

    @property
    def total_examples(self) -> float:
        """Useful examples of the whole run."""
        return self._profile.total_examples

    @property
    def is_complete(self) -> bool:
        """The run is over."""
        return self._is_end(self.progress_examples)

    @property
    def devices(self) -> int:
        """Devices at work."""
        return sum(each.devices for each in self.members)

    def train_on(self, members: tuple[Member, ...]) -> None:
        """From now on these are at work; a change holds training up."""
        if members == self.members:
            return
        before = len(self.members) or self._trained_on
        self.members = members
        self._trained_on = before
        self._untold_seconds.clear()
        self._next_batches.clear()
        if not members:
            return
        is_new = self.now_seconds != self._changed_seconds
        if is_new:
            self._changed_seconds = self.now_seconds
            self.starts += 1
        pause_seconds = self._settings.pause_seconds
        self._held_up_seconds = self.now_seconds + pause_seconds
        if before and is_new:
            kind = "join" if len(members) > before else "drain"
            self._untold_pauses.append(MembershipPause(kind, pause_seconds, before, len(members)))

    def hear(self, throughput: ThroughputParameters | None) -> None:
        """Take over the controller's fit for the devices at work."""
        if throughput != self._throughput:
            self._throughput = throughput
            self._next_batches.clear()

    def completes_before(self, seconds: float) -> float | None:
        """When the run will be over, if that is before `seconds` and nothing changes."""
        for stretch in self._stretches(seconds):
            if self._is_end(stretch.progress_examples):
                return stretch.to_seconds
        return None

    def advance(self, to_seconds: float) -> None:
        """Let time pass, up to the end of the run."""
        for stretch in self._stretches(to_seconds):
            self._take(stretch)
        self.now_seconds = to_seconds

    def report(self) -> TrainingReport:
        """What the deciding replica tells now; step times and pauses since the last time.

        There must be members.
        """
        error = self._settings.noise_error * self._random.standard_normal()
        self._noise_factor = float(np.exp(error))
        untold, self._untold_seconds = self._untold_seconds, {}
        pauses, self._untold_pauses = tuple(self._untold_pauses), []
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
            observations=tuple(self._observation(*each) for each in untold.items()),
            pauses=pauses,
        )

    def step_seconds(self, batch: Batch) -> tuple[float, float]:
        """A step of the members at `batch`, and the part of it that they synchronise in.

        Members of several kinds, while a job moves, go at the pace of the slowest kind, each
        as if it were alone with its part of the batch.

        Raises:
            Unprofiled: it is too far from anything that was measured.
        """
        slowest = (0.0, 0.0)
        for kind, placement in self._placements():
            times = self._profile.step_times(kind, placement, batch.device)
            whole_seconds = times.accumulated_seconds(batch.accumulation)
            slowest = max(slowest, (whole_seconds, times.sync_seconds))
        slowdown = self._settings.slowdown
        return slowest[0] * slowdown, slowest[1] * slowdown

    def _split(self, total: int) -> Batch:
        """How a batch is spread: no device gets more than was measured at this placement."""
        measured = (
            self._profile.device_batches(kind, placement)[1]
            for kind, placement in self._placements()
        )
        most = min(self.bounds.device_maximum, int(min(measured)))
        is_lone = self.devices == 1 and total > self.bounds.initial
        if is_lone and self._settings.quirks.lone_accumulation:
            most = min(most, -(-total // 2))
        return split_batch(total, self.devices, most)

    def _placements(self) -> list[tuple[str, tuple[int, ...]]]:
        """The devices on each instance, by kind."""
        found: dict[str, tuple[int, ...]] = {}
        for each in self.members:
            found[each.profile_kind] = (*found.get(each.profile_kind, ()), each.devices)
        return sorted(found.items())

    def _stretches(self, to_seconds: float) -> Iterator[_Stretch]:
        """What happens until then if nothing changes. It changes nothing itself."""
        now, progress = self.now_seconds, self.progress_examples
        held_up = self._held_up_seconds if self.members else to_seconds
        if now < min(held_up, to_seconds):
            now = min(held_up, to_seconds)
            yield _Stretch(now, progress)
        total = self._batch_total
        while now < to_seconds and not self._is_end(progress):
            total = self._next_batch(progress, total)
            batch = self._split(total)
            step_seconds, _ = self.step_seconds(batch)
            useful = total * self._efficiency(progress, total)
            end = self._epoch_end(progress)
            needed_seconds = (end - progress) / useful * step_seconds
            lasts_seconds = min(needed_seconds, to_seconds - now)
            steps = lasts_seconds / step_seconds
            progress = end if lasts_seconds == needed_seconds else progress + steps * useful
            now += lasts_seconds
            yield _Stretch(now, progress, batch, steps)

    def _take(self, stretch: _Stretch) -> None:
        if self.members:
            self._extend_spans(stretch)
        if stretch.batch is not None:
            self._batch_total = stretch.batch.total
            told_seconds = self._untold_seconds.get(stretch.batch, 0.0)
            lasted_seconds = stretch.to_seconds - self.now_seconds
            self._untold_seconds[stretch.batch] = told_seconds + lasted_seconds
        self._steps += stretch.steps
        self.progress_examples = stretch.progress_examples
        self.now_seconds = stretch.to_seconds

    def _extend_spans(self, stretch: _Stretch) -> None:
        span = Span(
            from_seconds=self.now_seconds,
            to_seconds=stretch.to_seconds,
            offer="+".join(sorted({each.offer for each in self.members})),
            instances=len(self.members),
            devices=self.devices,
            batch=stretch.batch,
        )
        if self.spans:
            longer = replace(self.spans[-1], to_seconds=span.to_seconds)
            if longer == replace(span, from_seconds=longer.from_seconds):
                self.spans[-1] = longer
                return
        self.spans.append(span)

    def truth(self, kind: str, machine_devices: int, most_devices: int) -> Truth:
        """What the profile says of the run at its requested batch, on machines of that size."""
        batch = self._requested_batch or self.bounds.initial
        if not self._true_step_seconds:
            self._true_step_seconds = dict(
                self._steps_packed(kind, machine_devices, most_devices, batch)
            )
        return Truth(self._true_step_seconds, self._steps_left(batch))

    def _steps_left(self, batch: int) -> float:
        at, steps = self.progress_examples, 0.0
        left = self._profile.epoch_end_examples[self._epoch(at) :]
        if self._settings.quirks.epoch_uncounted:
            at, left = float(left[0]), left[1:]
            if not len(left):
                return 1.0
        for end in left:
            steps += float(end - at) / (batch * self._efficiency(at, batch))
            at = float(end)
        return steps

    def _steps_packed(
        self, kind: str, machine_devices: int, most_devices: int, batch: int
    ) -> Iterator[tuple[int, float]]:
        for devices in range(1, min(most_devices, batch) + 1):
            whole, rest = divmod(devices, machine_devices)
            placement = (machine_devices,) * whole + ((rest,) if rest else ())
            try:
                most = int(self._profile.device_batches(kind, placement)[1])
                most = min(most, self.bounds.device_maximum)
                if devices == 1 and self._settings.quirks.lone_accumulation:
                    most = min(most, -(-batch // 2))
                split = split_batch(batch, devices, most)
                times = self._profile.step_times(kind, placement, split.device)
            except Unprofiled:
                return
            seconds = times.accumulated_seconds(split.accumulation)
            yield devices, seconds * self._settings.slowdown

    def _next_batch(self, progress: float, current: int) -> int:
        """What a trainer goes on with; it is the same for as long as nothing of this changes."""
        if self._requested_batch is not None:
            return self._requested_batch
        key = (self._epoch(progress), current, self._noise_factor)
        if key not in self._next_batches:
            self._next_batches[key] = next_batch_total(
                current,
                self.bounds,
                self._throughput,
                self._noise_told(progress, current),
                len(self.members),
                self.devices,
            )
        return self._next_batches[key]

    def _observation(self, batch: Batch, seconds: float) -> StepObservation:
        step_seconds, sync_seconds = self.step_seconds(batch)
        error = float(np.exp(self._settings.step_error * self._random.standard_normal()))
        return StepObservation(
            device_kind=self.members[0].device_kind,
            instances=len(self.members),
            devices=self.devices,
            device_batch=batch.device,
            accumulation=batch.accumulation,
            step_seconds=step_seconds * error,
            sync_seconds=sync_seconds * error,
            steps=max(int(seconds / step_seconds), 1),
        )

    def _is_end(self, progress: float) -> bool:
        return progress >= self.total_examples * (1 - _NEARLY)

    def _epoch(self, progress: float) -> int:
        ends = self._profile.epoch_end_examples
        return min(int(np.searchsorted(ends, progress * (1 + _NEARLY), "right")), len(ends) - 1)

    def _epoch_end(self, progress: float) -> float:
        return float(self._profile.epoch_end_examples[self._epoch(progress)])

    def _efficiency(self, progress: float, batch: int) -> float:
        square, variance = self._profile.gradients(progress, batch)
        noise_examples = self.bounds.initial * variance / square
        return float(efficiency(noise_examples, self.bounds.initial, batch))

    def _noise_told(self, progress: float, batch: int) -> NoiseScale:
        square, variance = self._profile.gradients(progress, batch)
        deviation = max(self._settings.noise_error, _LEAST_NOISE_DEVIATION)
        return NoiseScale(self.bounds.initial, square, variance * self._noise_factor, deviation)
