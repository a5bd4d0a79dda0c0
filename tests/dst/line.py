"""Line between a controller and a cloud: each call may be refused, lost, late or doubled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from tests.dst.scheduler import Killed, Scheduler

Reply = TypeVar("Reply")

CALL_PAUSES: Final = 0.3  # probability of a pause before and after the cloud applies a call


class CloudErrors(Protocol):
    """Errors of one cloud's client."""

    def refused(self, action: str) -> Exception:
        """Return the error of a server that failed before it applied the call."""

    def throttled(self, action: str) -> Exception:
        """Return the error of a call above the account's rate."""

    def denied(self, action: str) -> Exception:
        """Return the error of a call without permission."""

    def lost(self, action: str) -> Exception:
        """Return the error of a connection that broke."""


@dataclass(eq=False)
class Life:
    """One controller process. It dies at the mark at which `marks_left` is 0; -1 is never.

    Marks are before and after each write to the store and each call to a cloud. Every mark of a
    dead controller raises, so that no cleanup of a killed task has an effect.
    """

    number: int
    marks_left: int = -1
    is_dead: bool = False

    def mark(self) -> None:
        """Pass a mark.

        Raises:
            Killed: the controller dies here, or is dead.
        """
        if self.marks_left == 0:
            self.is_dead = True
        if self.is_dead:
            raise Killed
        if self.marks_left > 0:
            self.marks_left -= 1


@dataclass
class Weather:
    """Faults in force: of cloud calls by action, of the store, and of the API's replies."""

    calls: list[Disturbance] = field(default_factory=list)
    failing_writes: int = 0
    disk_full_until_seconds: int = 0
    lost_replies: int = 0
    doubled_requests: int = 0

    def next(self, action: str, now_seconds: int) -> str | None:
        """Return the disturbance of this call, counted as used; None for none."""
        for disturbance in self.calls:
            if not disturbance.concerns(action, now_seconds):
                continue
            disturbance.times -= 1
            if disturbance.times <= 0:
                self.calls.remove(disturbance)
            return disturbance.way
        return None

    def is_calm(self, now_seconds: int) -> bool:
        """Return whether no fault of calls or of the store is in force."""
        is_disturbed = any(now_seconds < entry.until_seconds for entry in self.calls)
        is_full = now_seconds < self.disk_full_until_seconds
        return not is_disturbed and not is_full and self.failing_writes == 0

    def clear(self) -> None:
        """End all faults."""
        self.calls.clear()
        self.failing_writes = self.disk_full_until_seconds = 0
        self.lost_replies = self.doubled_requests = 0


@dataclass(eq=False)
class Disturbance:
    """Fault of the next `times` calls of one action, until a time; `action` "*" is any."""

    action: str
    way: str
    times: int
    until_seconds: int

    def concerns(self, action: str, now_seconds: int) -> bool:
        """Return whether the call meets this fault."""
        return self.action in ("*", action) and now_seconds < self.until_seconds


@dataclass
class Line:
    """Calls of one controller to one cloud."""

    scheduler: Scheduler
    life: Life
    weather: Weather
    errors: CloudErrors

    def call(self, action: str, apply: Callable[[], Reply]) -> Reply:
        """Send a call and return its reply.

        Raises:
            Exception: an error of the cloud's client.
            Killed: the controller has died.
        """
        self.life.mark()
        self.scheduler.pause(CALL_PAUSES)
        way = self.weather.next(action, self.scheduler.now_seconds)
        if way in ("refused", "throttled", "denied", "lost before"):
            raise getattr(self.errors, way.partition(" ")[0])(action)
        if way == "slow before":
            self.scheduler.sleep(20)
        reply: Any = apply()
        if way == "doubled":
            reply = apply()
        self.life.mark()
        if way == "slow after":
            self.scheduler.sleep(20)
        self.scheduler.pause(CALL_PAUSES)
        self.life.mark()
        if way == "lost after":
            raise self.errors.lost(action)
        return reply  # type: ignore[no-any-return]
