"""Measurements of each job: step times, durations, noise scales, and the fitted models."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.goodput import NoiseScale
from autoscaler.domain.report import StepObservation, TrainingReport
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.store.records.step_times import Configuration

MAXIMUM_CONFIGURATIONS = 200
# Least weight of the newest duration in a mean of durations.
_LEAST_WEIGHT = 0.1
# Least ratio of the progress at successive points of the noise history. The noise scale changes
# with the order of magnitude of the progress; a million-fold progress has fewer than 300 points.
_NOISE_SPACING = 1.05

# Names of durations that the controller measures: from the launch call to the first training step,
# from the hand-over by another job to the first step, and of an allocation until it is reversed.
START_DURATION = "start"
HAND_OVER_DURATION = "hand-over"
REVERSED_DURATION = "reversed"
# Of restartable jobs: from the order to stop until the first progress of the next start, and from
# one checkpoint to the next.
RESTART_DURATION = "restart"
SAVE_INTERVAL_DURATION = "checkpoint interval"


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of `count` durations, in seconds. Later durations weigh at least a tenth."""

    seconds: float = 0.0
    count: int = 0

    def with_one_more(self, seconds: float) -> Mean:
        """Return the mean after one more duration."""
        count = self.count + 1
        share = max(1 / count, _LEAST_WEIGHT)
        return Mean(self.seconds + (seconds - self.seconds) * share, count)


@dataclass(frozen=True, slots=True)
class NoisePoint:
    """Gradient noise scale at one progress of a job."""

    progress_examples: float
    noise: NoiseScale


class Measurements(ABC):
    """Measurements of the jobs of one store.

    Methods that add measurements raise `UnknownJob` if no job has the id. They ignore times that
    are negative or not finite, and step times of 0 or over 0 steps.
    """

    @abstractmethod
    def add_observations(
        self, job: str, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        """Merge step times into the means of their configurations."""

    @abstractmethod
    def observations(self, job: str) -> tuple[StepObservation, ...]:
        """Return one observation for each configuration, the latest first.

        `steps` is the decayed weight, with a half-life of `step_times.HALF_LIFE_SECONDS` of
        training in the same configuration. `era` is 0 at the current speed of a size and negative
        before its last changes of speed. Only the latest `MAXIMUM_CONFIGURATIONS` are kept.
        """

    @abstractmethod
    def observations_revision(self, job: str) -> int:
        """Return the number of times that the observations of a job were added to.

        While the number is the same, `observations` returns equal values. It is cheaper than they
        are: caches of values that depend on them have it in their keys. A cache reads the number
        before the observations.
        """

    @abstractmethod
    def step_seconds(self, job: str) -> float | None:
        """Return the step time of the latest configuration in seconds; None before the first."""

    @abstractmethod
    def add_duration(self, job: str, offer: str | None, what: str, seconds: float) -> None:
        """Merge a duration into the mean named `what`; `offer` is None if it has no offer."""

    @abstractmethod
    def durations(self, job: str) -> Mapping[tuple[str | None, str], Mean]:
        """Return the mean durations of a job, by (offer or None, name)."""

    @abstractmethod
    def noise_history(self, job: str) -> tuple[NoisePoint, ...]:
        """Return the noise scales of a job over its progress, at points at least 5 % apart."""

    def save_models(self, job: str, models: Mapping[str, ThroughputModel]) -> None:
        """Store the fitted models of a job, by kind of device, in place of the earlier models."""
        self.save_all_models({job: models})

    @abstractmethod
    def save_all_models(self, models: Mapping[str, Mapping[str, ThroughputModel]]) -> None:
        """Store the fitted models of some jobs in one transaction, by job, as `save_models`."""

    @abstractmethod
    def models(self, job: str) -> Mapping[str, ThroughputModel]:
        """Return the stored models, by kind of device; empty if none are stored."""

    @abstractmethod
    def models_of(self, jobs: Collection[str]) -> Mapping[str, Mapping[str, ThroughputModel]]:
        """Return the stored models of each of these jobs that has any, by kind of device."""


class Book(ABC):
    """Writable measurements of one existing job."""

    def add_report(self, report: TrainingReport, now_seconds: float) -> None:
        """Store the step times, pauses and noise scale of a report."""
        self.add_observations(report.observations, now_seconds)
        for pause in report.pauses:
            self.add_duration(None, pause_name(pause.kind), pause.seconds)
        if report.noise is not None:
            self._add_noise(NoisePoint(report.progress_examples, report.noise))

    def add_observations(
        self, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        """Merge step times into the means of their configurations."""
        valid = [new for new in observations if _is_valid(new)]
        if not valid:
            return
        for new in valid:
            self._merge(Configuration(*new.configuration), new, now_seconds)
        self._forget_all_but(MAXIMUM_CONFIGURATIONS)
        self._count_revision()

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
        """Keep only the `maximum` latest configurations."""

    @abstractmethod
    def _count_revision(self) -> None:
        """Add 1 to the revision of the observations."""

    @abstractmethod
    def _merge_duration(self, offer: str | None, what: str, seconds: float) -> None:
        """Merge a duration into the mean of its name."""

    @abstractmethod
    def _last_noise_examples(self) -> float:
        """Return the progress at the last point of the noise history; 0 before the first."""

    @abstractmethod
    def _keep_noise(self, point: NoisePoint) -> None:
        """Add a point to the noise history."""


def pause_name(kind: str) -> str:
    """Return the name of the duration for pauses of a kind: join, drain or loss."""
    return f"{kind} pause"


def _is_valid(new: StepObservation) -> bool:
    has_steps = new.steps > 0 and 0 < new.step_seconds < math.inf
    return has_steps and 0 <= new.sync_seconds < math.inf
