"""Common base of simulated trainings of one job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from autoscaler.domain.goodput import Batch, BatchBounds, StepParameters
from autoscaler.domain.report import MembershipPause, StepObservation, TrainingReport


@dataclass(frozen=True, slots=True)
class Member:
    """Instance at work: its offer, and the kind of device under which it was profiled.

    `is_warm`: the instance was handed over from another job.
    """

    instance: str
    offer: str
    device_kind: str
    profile_kind: str
    devices: int
    is_warm: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """Stretch of training without changes. `batch` is None while training is paused."""

    from_seconds: float
    to_seconds: float
    members: tuple[Member, ...]
    batch: Batch | None

    @property
    def seconds(self) -> float:
        """Duration of the stretch."""
        return self.to_seconds - self.from_seconds

    @property
    def devices(self) -> int:
        """Number of devices at work."""
        return sum(member.devices for member in self.members)


class JobTraining(ABC):
    """Simulated training of one job up to `now_seconds`; `spans` are its past.

    Every change of members pauses training for `pause_seconds`, the first start too.
    `exclusive_seconds` is the duration alone on the requested devices; None: unknown.
    `is_crowded`: another distributed job slows this one down.
    """

    def __init__(self, bounds: BatchBounds, pause_seconds: float, now_seconds: float) -> None:
        self.bounds = bounds
        self.exclusive_seconds: float | None = None
        self.is_crowded = False
        self._pause_seconds = pause_seconds
        self._held_up_seconds = now_seconds
        self.changed_seconds: float | None = None
        self._trained_on = 0
        self._untold_pauses: list[MembershipPause] = []
        self.now_seconds = now_seconds
        self.members: tuple[Member, ...] = ()
        self.spans: list[Span] = []
        self.starts = 0

    @property
    def devices(self) -> int:
        """Number of devices at work."""
        return sum(member.devices for member in self.members)

    def train_on(self, members: tuple[Member, ...]) -> None:
        """Set the instances at work from now on; a change pauses training."""
        if members == self.members:
            return
        before = len(self.members) or self._trained_on
        self.members = members
        self._trained_on = before
        if not members:
            return
        is_new = self.now_seconds != self.changed_seconds
        if is_new:
            self.changed_seconds = self.now_seconds
            self.starts += 1
        self._held_up_seconds = self.now_seconds + self._pause_seconds
        if before and is_new:
            kind = "join" if len(members) > before else "drain"
            pause = MembershipPause(kind, self._pause_seconds, before, len(members))
            self._untold_pauses.append(pause)

    @property
    def held_up_seconds(self) -> float:
        """Time until which training is paused by the last change of its members."""
        return self._held_up_seconds

    @property
    def is_starting(self) -> bool:
        """Whether the job has members and has not made a step on any yet."""
        return False

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether the run is over."""

    @abstractmethod
    def completes_before(self, seconds: float) -> float | None:
        """Return the end of the run without changes, if before `seconds`; else None."""

    @abstractmethod
    def advance(self, to_seconds: float) -> None:
        """Advance the training, at most to the end of the run."""

    @abstractmethod
    def report(self) -> TrainingReport:
        """Return the deciding replica's report, with step times and pauses since the last.

        There must be members.
        """

    @abstractmethod
    def hear(self, throughput: StepParameters | None) -> None:
        """Receive the controller's throughput fit for the devices at work; None: no fit."""

    def _observed(
        self, batch: Batch, times: tuple[float, float], seconds: float, error: float
    ) -> StepObservation:
        """Return the observation of `seconds` of training at one batch.

        `times` are seconds of a step and of its synchronisation; both are multiplied by `error`.
        """
        step_seconds, sync_seconds = times
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

    def _pauses_to_tell(self) -> tuple[MembershipPause, ...]:
        """Return the pauses since the last call."""
        pauses, self._untold_pauses = tuple(self._untold_pauses), []
        return pauses

    def _spend_until(self, to_seconds: float, batch: Batch | None) -> None:
        """Advance time at one batch; None: paused."""
        if self.members:
            self._extend_spans(to_seconds, batch)
        self.now_seconds = to_seconds

    def _extend_spans(self, to_seconds: float, batch: Batch | None) -> None:
        since_seconds = self.now_seconds
        if self.spans and self._goes_on(self.spans[-1], batch):
            since_seconds = self.spans.pop().from_seconds
        self.spans.append(
            Span(
                from_seconds=since_seconds,
                to_seconds=to_seconds,
                members=self.members,
                batch=batch,
            )
        )

    def _goes_on(self, last: Span, batch: Batch | None) -> bool:
        """Return whether batch and members are those of the last span."""
        return last.batch == batch and last.members == self.members
