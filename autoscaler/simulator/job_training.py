"""One job's training as the simulation moves it on: what all kinds of it have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from autoscaler.domain.goodput import Batch, BatchBounds, StepParameters
from autoscaler.domain.report import MembershipPause, StepObservation, TrainingReport


@dataclass(frozen=True, slots=True)
class Member:
    """One instance at work: what it is offered as, and as which kind it was profiled.

    One that `is_warm` has come from another job.
    """

    instance: str
    offer: str
    device_kind: str
    profile_kind: str
    devices: int
    is_warm: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch in which nothing changed. `batch` is None while training is held up."""

    from_seconds: float
    to_seconds: float
    members: tuple[Member, ...]
    batch: Batch | None

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.to_seconds - self.from_seconds

    @property
    def devices(self) -> int:
        """Devices at work."""
        return sum(each.devices for each in self.members)


class JobTraining(ABC):
    """The state of one job's training at `now_seconds`; `spans` are all that lies behind it.

    Every change of members, the first start too, holds training up for `pause_seconds`.
    `exclusive_seconds` is what the run takes alone on what was requested, None if that is not
    known. `is_crowded` while another distributed job is in the way.
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
        """Devices at work."""
        return sum(each.devices for each in self.members)

    def train_on(self, members: tuple[Member, ...]) -> None:
        """From now on these are at work; a change holds training up."""
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
    def is_starting(self) -> bool:
        """It has members, and has not come to its first step on any."""
        return False

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """The run is over."""

    @abstractmethod
    def completes_before(self, seconds: float) -> float | None:
        """When the run will be over, if that is before `seconds` and nothing changes."""

    @abstractmethod
    def advance(self, to_seconds: float) -> None:
        """Let time pass, up to the end of the run."""

    @abstractmethod
    def report(self) -> TrainingReport:
        """What the deciding replica tells now; step times and pauses since the last time.

        There must be members.
        """

    @abstractmethod
    def hear(self, throughput: StepParameters | None) -> None:
        """Take over the controller's fit for the devices at work."""

    def _observed(
        self, batch: Batch, times: tuple[float, float], seconds: float, error: float
    ) -> StepObservation:
        """What is told of `seconds` at a batch; `times` of a step and its sync, off by `error`."""
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
        """Those since the last time."""
        pauses, self._untold_pauses = tuple(self._untold_pauses), []
        return pauses

    def _spend_until(self, to_seconds: float, batch: Batch | None) -> None:
        """Let time pass at a batch, or held up."""
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
        """Whether nothing has changed since the last span began."""
        return last.batch == batch and last.members == self.members
