"""Offers that can't hold a job's model, and the choice of the devices that share one copy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain.allocation import Allocation


class Unfit(StrEnum):
    """Reason why an offer can't hold a job.

    MEMORY: its devices are too small. COPIES: its instances can't hold whole copies of the model.
    GANG: a copy takes more of its instances than the job may hold.
    """

    MEMORY = "memory"
    COPIES = "copies"
    GANG = "gang"


@dataclass(frozen=True, slots=True)
class UnfitOffer:
    """Offer that can't hold a job, the reason, and what is needed against what there is.

    `needed` and `available` are bytes of a device for MEMORY, devices of a copy and of an instance
    for COPIES, and instances for GANG.
    """

    offer: str
    reason: Unfit
    needed: float
    available: float

    def __str__(self) -> str:
        needed, available = self.needed, self.available
        match self.reason:
            case Unfit.MEMORY:
                return (
                    f"{self.offer}: a device needs {needed / 1e9:.3g} GB and has "
                    f"{available / 1e9:.3g} GB"
                )
            case Unfit.COPIES:
                return (
                    f"{self.offer}: {needed:.0f} devices hold a copy, which instances of "
                    f"{available:.0f} can't form"
                )
            case Unfit.GANG:
                return (
                    f"{self.offer}: a copy takes {needed:.0f} instances, and the job may hold "
                    f"{available:.0f}"
                )


class ShardReason(StrEnum):
    """Reason for the choice of a shard."""

    LEAST_COST = "least cost"
    ONLY_ONE_FITS = "only one fits"


@dataclass(frozen=True, slots=True)
class ShardForecast:
    """Forecast of a whole job whose copies of the model are held by `shard` devices each.

    Attributes:
        shard: devices of a copy.
        allocation: the objective's choice; None: no offer can hold the job.
        usd_per_hour: price of the allocation.
        seconds: median time of the whole job; None: unknown.
        usd: median cost; None: unknown.
        cost_usd: cost with the worth of the time, of the whole job or of a million useful examples
            if its length is unknown, at the allocations that suit its speeds once these are
            known; None: no offer can hold the job.
        unfit: offers that can't hold the job.
    """

    shard: int
    allocation: Allocation | None
    usd_per_hour: float
    seconds: float | None
    usd: float | None
    cost_usd: float | None
    unfit: tuple[UnfitOffer, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardChoice:
    """Chosen shard, the reason, and the forecasts of all candidates."""

    shard: int
    reason: ShardReason
    forecasts: tuple[ShardForecast, ...]

    def __str__(self) -> str:
        others = [forecast for forecast in self.forecasts if forecast.shard != self.shard]
        compared = ", ".join(
            f"{forecast.shard}: "
            + ("fits nowhere" if forecast.cost_usd is None else f"${forecast.cost_usd:.2f}")
            for forecast in others
        )
        chosen = next(forecast for forecast in self.forecasts if forecast.shard == self.shard)
        cost = f"${chosen.cost_usd:.2f}" if chosen.cost_usd is not None else "unknown"
        beside = f" beside {compared}" if compared else ""
        return f"shard {self.shard}, {self.reason.value}: {cost} with the worth of time{beside}"
