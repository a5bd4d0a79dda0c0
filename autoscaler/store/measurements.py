"""What was measured of each job: step times, durations, noise, and the models fitted to them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.goodput import NoiseScale
from autoscaler.domain.report import MembershipPause, StepObservation, TrainingReport
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.store.step_times import Configuration

MAXIMUM_CONFIGURATIONS = 200
# A duration counts at least this share of the mean, however many came before it.
_LEAST_SHARE = 0.1
# The noise scale changes with the order of magnitude of the progress, so points of the history
# stand this factor apart: fewer than 300 for a million-fold progress.
_NOISE_SPACING = 1.05

# The names of durations that the controller measures: from the launch call to the first step
# trained, the same from when an instance came from another job, and how long an allocation lasted
# that a later decision took back.
START_DURATION = "start"
HAND_OVER_DURATION = "hand-over"
REVERSED_DURATION = "reversed"


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of `count` durations, the last ones counting most."""

    seconds: float = 0.0
    count: int = 0

    def with_one_more(self, seconds: float) -> Mean:
        """The mean after one more duration."""
        count = self.count + 1
        share = max(1 / count, _LEAST_SHARE)
        return Mean(self.seconds + (seconds - self.seconds) * share, count)


@dataclass(frozen=True, slots=True)
class NoisePoint:
    """The noise scale when the job had made that progress."""

    progress_examples: float
    noise: NoiseScale


class Measurements(ABC):
    """The measurements of the jobs of one store.

    What adds to them raises `UnknownJob` where there is no such job. A time that is negative or
    not finite, and a step time of 0 or of no step, is passed over: it would spoil the mean.
    """

    @abstractmethod
    def add_observations(
        self, job: str, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        """Merge step times into the means of their configurations."""

    @abstractmethod
    def observations(self, job: str) -> tuple[StepObservation, ...]:
        """Return one observation for each configuration, the one that ran last first.

        `steps` is the faded weight: a step counts half when `step_times.HALF_LIFE_SECONDS` of
        training in the same configuration have followed it. `era` tells which observations of a
        size are from before it changed its speed. The `MAXIMUM_CONFIGURATIONS` that ran last are
        kept.
        """

    @abstractmethod
    def step_seconds(self, job: str) -> float | None:
        """The step time of the configuration that ran last; None before the first."""

    def add_pause(self, job: str, pause: MembershipPause) -> None:
        """Merge what a change of membership cost into the mean of `pause_name(pause.kind)`."""
        self.add_duration(job, None, pause_name(pause.kind), pause.seconds)

    @abstractmethod
    def add_duration(self, job: str, offer: str | None, what: str, seconds: float) -> None:
        """Merge a duration into the mean of its name; `offer` None where it belongs to none."""

    @abstractmethod
    def durations(self, job: str) -> Mapping[tuple[str | None, str], Mean]:
        """The means of a job's durations, by offer and name."""

    @abstractmethod
    def noise_history(self, job: str) -> tuple[NoisePoint, ...]:
        """The noise scale over the progress of a job, at points a twentieth of it apart."""

    @abstractmethod
    def save_models(self, job: str, models: Mapping[str, ThroughputModel]) -> None:
        """Keep the fitted models of a job, by kind of device, in place of those before."""

    @abstractmethod
    def models(self, job: str) -> Mapping[str, ThroughputModel]:
        """The models that were saved last; none before that."""


class Book(ABC):
    """The measurements of one job, open to be written; the job is there."""

    def add_report(self, report: TrainingReport, now_seconds: float) -> None:
        """Take the measurements out of a report."""
        self.add_observations(report.observations, now_seconds)
        for pause in report.pauses:
            self.add_duration(None, pause_name(pause.kind), pause.seconds)
        if report.noise is not None:
            self._add_noise(NoisePoint(report.progress_examples, report.noise))

    def add_observations(
        self, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        """Merge step times into the means of their configurations."""
        for new in observations:
            if _says_something(new):
                configuration = Configuration(
                    new.device_kind, new.instances, new.devices, new.device_batch, new.accumulation
                )
                self._merge(configuration, new, now_seconds)
        self._forget_all_but(MAXIMUM_CONFIGURATIONS)

    def add_duration(self, offer: str | None, what: str, seconds: float) -> None:
        """Merge a duration into the mean of its name."""
        if 0 <= seconds < math.inf:
            self._merge_duration(offer, what, seconds)

    def _add_noise(self, point: NoisePoint) -> None:
        if point.progress_examples > self._last_noise_examples() * _NOISE_SPACING:
            self._keep_noise(point)

    @abstractmethod
    def _merge(
        self, configuration: Configuration, new: StepObservation, now_seconds: float
    ) -> None:
        """Merge step times into the means of their configuration."""

    @abstractmethod
    def _forget_all_but(self, maximum: int) -> None:
        """Keep the configurations that ran last."""

    @abstractmethod
    def _merge_duration(self, offer: str | None, what: str, seconds: float) -> None:
        """Merge a duration into the mean of its name."""

    @abstractmethod
    def _last_noise_examples(self) -> float:
        """The progress at the last point of the noise history; 0 before the first."""

    @abstractmethod
    def _keep_noise(self, point: NoisePoint) -> None:
        """Add a point to the noise history."""


def pause_name(kind: str) -> str:
    """The name among the durations of the pauses of that kind: join, drain or loss."""
    return f"{kind} pause"


def _says_something(new: StepObservation) -> bool:
    has_steps = new.steps > 0 and 0 < new.step_seconds < math.inf
    return has_steps and 0 <= new.sync_seconds < math.inf
