"""Step times of one configuration over many reports: decaying means and changes of speed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from autoscaler.domain.report import StepObservation

# Half-life of a step time in the means, in seconds of training in the same configuration.
HALF_LIFE_SECONDS = 30.0
# A speed is settled, and a change of speed accepted, when two reports agree and together cover
# this many seconds of training.
SETTLED_SECONDS = 5.0
# Natural logarithm of the ratio of two step times above which they count as different speeds.
CHANGED_LOG_RATIO = 0.25


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Numbers of instances and of devices in total, for one kind of device."""

    device_kind: str
    instances: int
    devices: int


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    """Devices and split of the batch of a job, on which step times depend."""

    device_kind: str
    instances: int
    devices: int
    device_batch: int
    accumulation: int

    @property
    def size(self) -> Size:
        """Size of the configuration, without the split of the batch."""
        return Size(self.device_kind, self.instances, self.devices)


@dataclass(frozen=True, slots=True)
class Run:
    """Successive observations that agree with each other and contradict the settled speed.

    `since_seconds` is the time of the first report, in seconds since the epoch.
    """

    step_seconds: float
    sync_seconds: float
    steps: int
    since_seconds: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Decaying means of the step times of one configuration; `steps` is their decayed weight.

    Attributes:
        era: number of changes of speed of the size before these measurements.
        settled_seconds: step time when two reports first agreed in this era; 0 before.
        run: observations that may become a change of speed.
    """

    step_seconds: float = 0.0
    sync_seconds: float = 0.0
    steps: float = 0.0
    updated_seconds: float = 0.0
    era: int = 0
    settled_seconds: float = 0.0
    run: Run | None = None

    def with_more(self, new: StepObservation, now_seconds: float) -> StepTimes:
        """Return the means after one more observation.

        A second report that agrees with the first settles the speed. Two reports that agree with
        each other and contradict the means restart them. If the speed was settled, the restart
        begins the next era, because the size has become faster or slower.
        """
        reference_seconds = self.settled_seconds or self.step_seconds
        if not self.steps or _is_same_speed(reference_seconds, new.step_seconds):
            times = replace(self._mixed(new, now_seconds), run=None)
            is_second_report = self.steps > 0 and self.updated_seconds < now_seconds
            return times.settled() if is_second_report else times
        run = _extended_run(self.run, new, now_seconds)
        is_second_report = run.since_seconds < now_seconds
        if is_second_report and run.steps * run.step_seconds >= SETTLED_SECONDS:
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
        """Return the means as one observation in the given `era`."""
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
        """Return the means, settled if they cover at least `SETTLED_SECONDS` of training."""
        is_timed = self.steps * self.step_seconds >= SETTLED_SECONDS
        if self.settled_seconds or not is_timed:
            return self
        return replace(self, settled_seconds=self.step_seconds)


def merged(
    known: StepTimes | None, size_era: int, new: StepObservation, now_seconds: float
) -> StepTimes:
    """Return the step times of a configuration after one more observation.

    Args:
        known: step times before; None if there are none.
        size_era: latest era of the configurations of the same size. Step times of an earlier
            era are dropped, because they were measured at another speed.
        new: the observation.
        now_seconds: time of the report, in seconds since the epoch.
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


def _extended_run(run: Run | None, new: StepObservation, now_seconds: float) -> Run:
    """Return the run with one more observation; one at another speed starts a new run."""
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
