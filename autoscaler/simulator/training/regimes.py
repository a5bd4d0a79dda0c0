"""Training of a rigid job whose owner changes its batch, by a schedule of regimes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from autoscaler.domain.goodput import Batch, BatchBounds, StepParameters
from autoscaler.domain.report import StepObservation, TrainingReport
from autoscaler.domain.snapshot import GroundTruth, Regime, Regimes
from autoscaler.goodput.batch_choice import split_batch
from autoscaler.simulator.profiles.step_times import Unprofiled
from autoscaler.simulator.training.base import JobTraining
from autoscaler.simulator.training.profiled import TrainingSettings
from autoscaler.simulator.workloads.regimes import Schedule, ScheduledRegime

_NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Training in one regime until `to_seconds`; without a regime training is paused."""

    to_seconds: float
    epochs_done: float
    regime: ScheduledRegime | None


class RegimeTraining(JobTraining):
    """Training on a schedule of regimes; every example of its epochs is a useful one."""

    def __init__(
        self, schedule: Schedule, first_batch: int, settings: TrainingSettings, now_seconds: float
    ) -> None:
        """Start a run of the schedule; `first_batch` is the batch at submission."""
        batches = (first_batch, *(regime.batch for regime in schedule.regimes))
        bounds = BatchBounds(first_batch, max(batches), max(batches), adaptive=False)
        super().__init__(bounds, settings.pause_seconds, now_seconds)
        self._schedule = schedule
        self._settings = settings
        self._random = np.random.default_rng(settings.seed)
        self._epochs_done = 0.0
        self._steps = 0.0
        self._unreported_seconds: dict[ScheduledRegime, float] = {}
        self.exclusive_seconds = settings.pause_seconds + schedule.seconds * settings.slowdown

    @property
    def total_examples(self) -> float:
        """Examples of the whole run."""
        return float(self._schedule.epochs * self._schedule.samples_per_epoch)

    @property
    def progress_examples(self) -> float:
        """Examples processed so far."""
        return self._epochs_done * self._schedule.samples_per_epoch

    @property
    def is_complete(self) -> bool:
        """Whether the run is over."""
        return self._is_end(self._epochs_done)

    def hear(self, throughput: StepParameters | None) -> None:
        """Ignore the fit, because the owner sets the batch."""

    def completes_before(self, seconds: float) -> float | None:
        """Return the end of the run without changes, if before `seconds`; else None.

        Raises:
            Unprofiled: the number of devices is not what the job requests.
        """
        for stretch in self._stretches(seconds):
            if self._is_end(stretch.epochs_done):
                return stretch.to_seconds
        return None

    def advance(self, to_seconds: float) -> None:
        """Advance the training, at most to the end of the run.

        Raises:
            Unprofiled: as `completes_before`.
        """
        for stretch in self._stretches(to_seconds):
            self._take(stretch)
        self.now_seconds = to_seconds

    def report(self) -> TrainingReport:
        """Return the deciding replica's report, with step times and pauses since the last."""
        unreported, self._unreported_seconds = self._unreported_seconds, {}
        regime, _ = self._current_regime(self._epochs_done)
        return TrainingReport(
            step=int(self._steps),
            epoch=int(self._epochs_done),
            progress_examples=self.progress_examples,
            total_examples=self.total_examples,
            batch=self._batch(regime),
            bounds=self.bounds,
            replicas=len(self.members),
            devices=self.devices,
            learning_rate=0.0,
            parameter_bytes=self._settings.parameter_bytes,
            observations=tuple(
                self._observation(*regime_seconds) for regime_seconds in unreported.items()
            ),
            pauses=self._pauses_to_tell(),
        )

    def truth(self) -> GroundTruth:
        """Return the schedule, without the remaining epochs of unfinished regimes."""
        regime, _ = self._current_regime(self._epochs_done)
        examples_left = (
            self._schedule.epochs - self._epochs_done
        ) * self._schedule.samples_per_epoch
        return GroundTruth(
            step_seconds={self._schedule.devices: self._step_seconds(regime)},
            remaining_steps=examples_left / regime.batch,
            regimes=Regimes(self._schedule.epochs, tuple(self._regimes_without_lengths())),
        )

    def _regimes_without_lengths(self) -> Iterator[Regime]:
        epochs_before = 0
        for regime in self._schedule.regimes:
            epochs_done = min(max(self._epochs_done - epochs_before, 0.0), float(regime.epochs))
            yield Regime(regime.batch, regime.epoch_seconds * self._settings.slowdown, epochs_done)
            epochs_before += regime.epochs

    def _stretches(self, to_seconds: float) -> Iterator[_Stretch]:
        """Yield the stretches until `to_seconds` without changing the state."""
        now, done = self.now_seconds, self._epochs_done
        requested_devices = self._schedule.devices
        if self.members and self.devices != requested_devices and now < to_seconds:
            raise Unprofiled(
                f"its epochs were measured on {requested_devices} devices, not on {self.devices}: "
                "use a policy that gives jobs what they asked for"
            )
        paused_until = self._held_up_seconds if self.members else to_seconds
        if now < min(paused_until, to_seconds):
            now = min(paused_until, to_seconds)
            yield _Stretch(now, done, None)
        while now < to_seconds and not self._is_end(done):
            regime, end = self._current_regime(done)
            epoch_seconds = regime.epoch_seconds * self._settings.slowdown
            needed_seconds = (end - done) * epoch_seconds
            lasts_seconds = min(needed_seconds, to_seconds - now)
            done = end if lasts_seconds == needed_seconds else done + lasts_seconds / epoch_seconds
            now += lasts_seconds
            yield _Stretch(now, done, regime)

    def _take(self, stretch: _Stretch) -> None:
        regime = stretch.regime
        if regime is not None:
            lasted_seconds = stretch.to_seconds - self.now_seconds
            earlier_seconds = self._unreported_seconds.get(regime, 0.0)
            self._unreported_seconds[regime] = earlier_seconds + lasted_seconds
            self._steps += lasted_seconds / self._step_seconds(regime)
        self._epochs_done = stretch.epochs_done
        self._spend_until(stretch.to_seconds, self._batch(regime) if regime else None)

    def _current_regime(self, epochs_done: float) -> tuple[ScheduledRegime, float]:
        """Return the regime after some epochs, and the total epochs at its end.

        At the end of a regime it is the next one.
        """
        end = 0
        for regime in self._schedule.regimes:
            end += regime.epochs
            if epochs_done < end * (1 - _NEARLY):
                break
        return regime, float(end)

    def _is_end(self, epochs_done: float) -> bool:
        return epochs_done >= self._schedule.epochs * (1 - _NEARLY)

    def _batch(self, regime: ScheduledRegime) -> Batch:
        return split_batch(regime.batch, self._schedule.devices, self.bounds.device_maximum)

    def _step_seconds(self, regime: ScheduledRegime) -> float:
        steps = self._schedule.samples_per_epoch / regime.batch
        return regime.epoch_seconds * self._settings.slowdown / steps

    def _observation(self, regime: ScheduledRegime, seconds: float) -> StepObservation:
        error = float(np.exp(self._settings.step_error * self._random.standard_normal()))
        times = (self._step_seconds(regime), 0.0)
        return self._observed(self._batch(regime), times, seconds, error)
