"""Figures of a change from a job's held allocation to another candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.economics.supply.supply import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class GoodputChange:
    """Goodput and price before and after a change; 0 before if nothing is held.

    Attributes:
        rate_before: useful examples a second.
        rate_after: useful examples a second.
        usd_per_second_before: price.
        usd_per_second_after: price.
        value_of_time: $ per second.
        boot_seconds: time until new instances train; 0 without new instances.
        trains_during_boot: whether the old instances train during the boot.
        cost_usd: cost of the change: boots, and the price and waiting of pauses.
        carried_usd: part of `cost_usd` for moving a checkpoint.
        is_by_checkpoint: whether the job moves to another network.
    """

    rate_before: float
    rate_after: float
    usd_per_second_before: float
    usd_per_second_after: float
    value_of_time: float
    boot_seconds: float
    trains_during_boot: bool
    cost_usd: float
    carried_usd: float = 0.0
    is_by_checkpoint: bool = False

    @property
    def rate(self) -> float:
        """Added goodput in useful examples a second."""
        return self.rate_after - self.rate_before

    @property
    def usd_per_second(self) -> float:
        """Added price in $ per second."""
        return self.usd_per_second_after - self.usd_per_second_before

    @property
    def marginal(self) -> float:
        """Added useful examples a second per added $/h; infinite if the price is unchanged."""
        if self.usd_per_second == 0:
            return float("inf")
        return self.rate / (self.usd_per_second * SECONDS_PER_HOUR)

    @property
    def average(self) -> float:
        """Useful examples a second per $/h before, with the value of time in the price."""
        paid = self.usd_per_second_before + self.value_of_time
        return self.rate_before / (paid * SECONDS_PER_HOUR) if paid > 0 else float("inf")

    @property
    def payback_seconds(self) -> float | None:
        """Seconds until the change has earned back its cost; None: never.

        Progress is valued at its price before the change: ``(p + v) / G``.
        """
        if self.rate_before <= 0:
            return None
        price = (self.usd_per_second_before + self.value_of_time) / self.rate_before
        earned = price * self.rate_after - self.usd_per_second_after - self.value_of_time
        return self.cost_usd / earned if earned > 0 else None

    def figures(self) -> Mapping[str, float]:
        """Return the finite figures by name, for the journal."""
        payback_seconds = self.payback_seconds
        per_hour = {
            "usd_per_hour_before": self.usd_per_second_before,
            "usd_per_hour_after": self.usd_per_second_after,
            "value_of_time_usd_per_hour": self.value_of_time,
        }
        figures = {
            "goodput_before": self.rate_before,
            "goodput_after": self.rate_after,
            "marginal_goodput_per_usd_per_hour": self.marginal,
            "average_goodput_per_usd_per_hour": self.average,
            "boot_seconds": self.boot_seconds,
            "switch_usd": self.cost_usd,
            **({"carried_usd": self.carried_usd} if self.is_by_checkpoint else {}),
            "payback_seconds": math.inf if payback_seconds is None else payback_seconds,
            **{name: value * SECONDS_PER_HOUR for name, value in per_hour.items()},
        }
        return {name: value for name, value in figures.items() if math.isfinite(value)}
