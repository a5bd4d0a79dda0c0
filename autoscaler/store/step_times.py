"""Step times of one configuration over many reports: a faded mean, and changes of speed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autoscaler.domain.report import StepObservation

# A step time that was measured this much training in the same configuration ago counts half: a
# single odd step of an ordinary length moves little.
HALF_LIFE_SECONDS = 30.0
# A speed is settled, and a change of speed accepted, when two reports agree and have timed this
# many seconds of training together.
SETTLED_SECONDS = 5.0
# Step times that differ by more than this, as a logarithm, are of two speeds.
CHANGED_LOG_RATIO = 0.25


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A number of instances and of devices in all, of one kind."""

    device_kind: str
    instances: int
    devices: int


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """What a job trains on, and how the batch is split: what step times depend on."""

    device_kind: str
    instances: int
    devices: int
    device_batch: int
    accumulation: int

    @property
    def size(self) -> Size:
        """The size without the batch."""
        return Size(self.device_kind, self.instances, self.devices)


@dataclass(frozen=True, slots=True)
class Run:
    """Successive observations that agree with each other and contradict the settled speed.

    `since_seconds` is when the first of them was reported.
    """

    step_seconds: float
    sync_seconds: float
    steps: int
    since_seconds: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The faded means of the step times of one configuration; `steps` is their faded weight.

    Attributes:
        era: number of changes of speed of the size until these were measured.
        settled_seconds: step time when two reports first agreed in this era; 0 before.
        run: the observations that may become a change of speed.
    """

    step_seconds: float = 0.0
    sync_seconds: float = 0.0
    steps: float = 0.0
    updated_seconds: float = 0.0
    era: int = 0
    settled_seconds: float = 0.0
    run: Run | None = None

    def with_more(self, new: StepObservation, now_seconds: float) -> StepTimes:
        """Return the means after one more stretch of training.

        The means take every observation. A second report that agrees with the first settles the
        speed. A second one that contradicts it alike begins it anew: as the next era if the speed
        was settled, since then the size has become faster or slower.
        """
        reference_seconds = self.settled_seconds or self.step_seconds
        if not self.steps or _is_same_speed(reference_seconds, new.step_seconds):
            times = replace(self._mixed(new, now_seconds), run=None)
            is_second = self.steps > 0 and self.updated_seconds < now_seconds
            return times.settled() if is_second else times
        run = _longer(self.run, new, now_seconds)
        is_second = run.since_seconds < now_seconds
        if is_second and run.steps * run.step_seconds >= SETTLED_SECONDS:
            return StepTimes(
                step_seconds=run.step_seconds,
                sync_seconds=run.sync_seconds,
                steps=run.steps,
                updated_seconds=now_seconds,
                era=self.era + (self.settled_seconds > 0),
                settled_seconds=run.step_seconds,
            )
        return replace(self._mixed(new, now_seconds), run=run)

    def observation(self, configuration: Configuration, era: int = 0) -> StepObservation:
        """Return these means as if they had been measured in one stretch, in that `era`."""
        return StepObservation(
            device_kind=configuration.device_kind,
            instances=configuration.instances,
            devices=configuration.devices,
            device_batch=configuration.device_batch,
            accumulation=configuration.accumulation,
            step_seconds=self.step_seconds,
            sync_seconds=self.sync_seconds,
            steps=max(round(self.steps), 1),
            era=era,
            is_settled=self.settled_seconds > 0,
        )

    def _mixed(self, new: StepObservation, now_seconds: float) -> StepTimes:
        trained_seconds = new.steps * new.step_seconds
        steps = self.steps * 0.5 ** (trained_seconds / HALF_LIFE_SECONDS) + new.steps
        share = new.steps / steps
        return replace(
            self,
            step_seconds=self.step_seconds + (new.step_seconds - self.step_seconds) * share,
            sync_seconds=self.sync_seconds + (new.sync_seconds - self.sync_seconds) * share,
            steps=steps,
            updated_seconds=now_seconds,
        )

    def settled(self) -> StepTimes:
        """Return these, settled if they were timed for long enough."""
        is_timed = self.steps * self.step_seconds >= SETTLED_SECONDS
        if self.settled_seconds or not is_timed:
            return self
        return replace(self, settled_seconds=self.step_seconds)


def merged(
    known: StepTimes | None, size_era: int, new: StepObservation, now_seconds: float
) -> StepTimes:
    """Return the times of a configuration after one more observation.

    Args:
        known: the times before; None if there are none.
        size_era: the latest era of the configurations of its size. Times of an earlier one are
            dropped, because they were measured at another speed.
        new: the observation.
        now_seconds: when it was reported.
    """
    if known is None or known.era < size_era:
        known = StepTimes(era=size_era)
    return known.with_more(new, now_seconds)


def latest_eras(times: Iterable[tuple[Configuration, StepTimes]]) -> dict[Size, int]:
    """Return the latest era of each size."""
    latest: dict[Size, int] = {}
    for configuration, known in times:
        size = configuration.size
        latest[size] = max(latest.get(size, 0), known.era)
    return latest


def _is_same_speed(first_seconds: float, second_seconds: float) -> bool:
    return abs(math.log(first_seconds / second_seconds)) <= CHANGED_LOG_RATIO


def _longer(run: Run | None, new: StepObservation, now_seconds: float) -> Run:
    """Return the run with one more observation, which begins another if it does not fit."""
    if run is None or not _is_same_speed(run.step_seconds, new.step_seconds):
        return Run(new.step_seconds, new.sync_seconds, new.steps, now_seconds)
    steps = run.steps + new.steps
    share = new.steps / steps
    return Run(
        step_seconds=run.step_seconds + (new.step_seconds - run.step_seconds) * share,
        sync_seconds=run.sync_seconds + (new.sync_seconds - run.sync_seconds) * share,
        steps=steps,
        since_seconds=run.since_seconds,
    )
