"""Cost and time of one way to run the jobs of the demo's simulated cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VALUE_OF_TIME: Final = 40.0
"""Dollars that an hour of waiting for a job costs its owner."""


@dataclass(frozen=True, slots=True)
class PaidRun:
    """Dollars of one way to run the jobs, and the mean time from a job's submission to its end."""

    name: str
    usd: float
    mean_hours: float
    jobs: int
    is_pool: bool = False

    @property
    def priced_usd(self) -> float:
        """Dollars with the waiting of all jobs, at the value of time."""
        return self.usd + VALUE_OF_TIME * self.mean_hours * self.jobs
