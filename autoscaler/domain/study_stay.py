"""Stays: periods in which one trial held one instance."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class StudyStay:
    """Period in which the trial `job` paid for an instance.

    `to_seconds` is None while the trial still pays. `devices` were in use at the last report.
    """

    job: str
    instance: str
    offer: str
    devices: int
    usd_per_hour: Decimal
    from_seconds: float
    to_seconds: float | None = None
