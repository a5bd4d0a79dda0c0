"""What a trial held of an instance, and when."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class StudyStay:
    """An instance while the trial `job` paid for it. `to_seconds` None: it still does.

    `devices` of it were at work when it was last told.
    """

    job: str
    instance: str
    offer: str
    devices: int
    usd_per_hour: Decimal
    from_seconds: float
    to_seconds: float | None = None
