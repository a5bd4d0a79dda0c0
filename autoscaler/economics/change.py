"""The figures of a change from what a job holds to another of its candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.economics.supply import SECONDS_PER_HOUR
from autoscaler.economics.wishes import Wish


@dataclass(frozen=True, slots=True)
class Change:
    """What is earned and paid before and after; before is 0 where nothing is held.

    Attributes:
        rate_before: useful examples a second.
        rate_after: the same.
        usd_per_second_before: what is paid.
        usd_per_second_after: the same.
        value_of_time: $ per second.
        boot_seconds: until new instances train; 0 where there are none.
        cost_usd: of changing: boots, and the waiting and paying while nobody trains.
        carried_usd: what of that is for the way of a checkpoint.
        is_by_checkpoint: it goes to another network.
    """

    rate_before: float
    rate_after: float
    usd_per_second_before: float
    usd_per_second_after: float
    value_of_time: float
    boot_seconds: float
    works_on: bool
    cost_usd: float
    carried_usd: float = 0.0
    is_by_checkpoint: bool = False

    @property
    def rate(self) -> float:
        """Useful examples a second that are added."""
        return self.rate_after - self.rate_before

    @property
    def usd_per_second(self) -> float:
        """$ per second that are added."""
        return self.usd_per_second_after - self.usd_per_second_before

    @property
    def marginal(self) -> float:
        """Useful examples a second per $/h of the change; infinite where it changes no price."""
        if self.usd_per_second == 0:
            return float("inf")
        return self.rate / (self.usd_per_second * SECONDS_PER_HOUR)

    @property
    def average(self) -> float:
        """Useful examples a second per $/h before, the value of time counted as paid."""
        paid = self.usd_per_second_before + self.value_of_time
        return self.rate_before / (paid * SECONDS_PER_HOUR) if paid > 0 else float("inf")

    @property
    def payback_seconds(self) -> float | None:
        """After how long the cost of changing is earned back; None where it never is.

        Progress counts at the price it has before.
        """
        if self.rate_before <= 0:
            return None
        price = (self.usd_per_second_before + self.value_of_time) / self.rate_before
        earned = price * self.rate_after - self.usd_per_second_after - self.value_of_time
        return self.cost_usd / earned if earned > 0 else None

    def figures(self) -> Mapping[str, float]:
        """By name, for the journal; all finite."""
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


def change_to(wish: Wish, target: int) -> Change:
    """What changing from what the job holds to its candidate `target` means."""
    candidates, value = wish.at.candidates, wish.aim.value_of_time
    held = candidates.held
    taken = wish.at.from_held(value)
    price = float(candidates.usd_per_second[target])
    idle_seconds = 0.0 if taken.works_on[target] else float(taken.ready_seconds[target])
    pause_usd = float(taken.pause_seconds[target]) * (price + value)
    network = candidates.terms.network[candidates.sizes.offer]
    return Change(
        rate_before=0.0 if held is None else float(candidates.rate[held]),
        rate_after=float(candidates.rate[target]),
        usd_per_second_before=0.0 if held is None else float(candidates.usd_per_second[held]),
        usd_per_second_after=price,
        value_of_time=value,
        boot_seconds=float(taken.ready_seconds[target]),
        works_on=bool(taken.works_on[target]),
        cost_usd=float(taken.boot_usd[target]) + idle_seconds * value + pause_usd,
        carried_usd=float(taken.carried_usd[target]),
        is_by_checkpoint=held is not None and bool(network[target] != network[held]),
    )
