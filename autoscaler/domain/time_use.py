"""Use of an instance's time for a job: what each second was for, as agents measure it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from autoscaler.domain.rules import LATEST_SECONDS, LONGEST_SECONDS, require_number


class CostCategory(StrEnum):
    """Purpose of a billed second or dollar, for the receipt of a job (docs/receipt.md).

    TRANSFER has dollars only. UNKNOWN is time of which no agent has reported the use.
    """

    USEFUL = "useful"
    BOOT = "boot"
    IDLE = "idle"
    PAUSE = "pause"
    LOST = "lost"
    TRANSFER = "transfer"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TimeUse:
    """Seconds of one or several instances, by what they were for."""

    useful_seconds: float = 0.0
    boot_seconds: float = 0.0
    idle_seconds: float = 0.0
    pause_seconds: float = 0.0
    lost_seconds: float = 0.0

    def __add__(self, other: TimeUse) -> TimeUse:
        return TimeUse(
            self.useful_seconds + other.useful_seconds,
            self.boot_seconds + other.boot_seconds,
            self.idle_seconds + other.idle_seconds,
            self.pause_seconds + other.pause_seconds,
            self.lost_seconds + other.lost_seconds,
        )

    def beyond(self, earlier: TimeUse) -> TimeUse:
        """Return the change since an earlier count; seconds that moved to another use are < 0."""
        return TimeUse(
            self.useful_seconds - earlier.useful_seconds,
            self.boot_seconds - earlier.boot_seconds,
            self.idle_seconds - earlier.idle_seconds,
            self.pause_seconds - earlier.pause_seconds,
            self.lost_seconds - earlier.lost_seconds,
        )

    @property
    def total_seconds(self) -> float:
        """Sum of all seconds."""
        return math.fsum(getattr(self, field.name) for field in fields(self))

    @property
    def useful_share(self) -> float | None:
        """Share of the seconds that were useful; None without any."""
        total_seconds = self.total_seconds
        return self.useful_seconds / total_seconds if total_seconds > 0 else None


@dataclass(frozen=True, slots=True)
class TimeCount:
    """Use of an instance's time for one job since `begun_seconds`, by the instance's clock.

    `present` is the category of the time at which the count was made: that of the seconds until
    the next count, as far as is known.
    """

    begun_seconds: float
    use: TimeUse
    present: CostCategory = CostCategory.UNKNOWN


@dataclass(frozen=True, slots=True)
class LostWork:
    """Steps that a job made again after a failure, from the checkpoint that it continued from.

    The first time they took the `seconds` of training before `until_seconds`, at the mean speed of
    that start of the script.
    """

    until_seconds: float
    seconds: float
    steps: int


def require_time_count(count: TimeCount) -> None:
    """Check the values of a count.

    Raises:
        SpecError: a value is out of its range; the message has its field.
    """
    require_number(count.begun_seconds, "time.begun_seconds", 0.0, LATEST_SECONDS)
    for field in fields(count.use):
        seconds = getattr(count.use, field.name)
        require_number(seconds, f"time.use.{field.name}", 0.0, LONGEST_SECONDS)
