"""Reasons that forbid an allocation of a job now, with their values and where these are set."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import LimitUnit, Offer


class BarKind(StrEnum):
    """Kind of reason that forbids an allocation. Kinds with a dot are keys of the job file."""

    LIMIT = "limit"
    REFUSED = "refused"
    MAXIMUM = "instances.max"
    MAXIMUM_OF_OFFER = "instances.max_of"
    MAXIMUM_PRICE = "instances.max_usd_per_hour"
    BUDGET = "objective.budget"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class SizeBar:
    """Reason that forbids an allocation.

    Attributes:
        kind: kind of reason.
        name: name of the limit, or the offer that is refused or bounded; empty for others.
        maximum: value of the limit or bound; None without a value.
        room: part of the maximum that other jobs leave; None unless jobs share it.
        unit: unit of both; None without a value.
        place: where the value is set, or why the size is fixed, in words; empty if unknown.
    """

    kind: BarKind
    name: str = ""
    maximum: float | None = None
    room: float | None = None
    unit: LimitUnit | None = None
    place: str = ""

    @property
    def title(self) -> str:
        """Short name: of the limit, or the key of the job file."""
        match self.kind:
            case BarKind.LIMIT:
                return self.name
            case BarKind.REFUSED:
                return "refused by the cloud"
            case BarKind.FIXED:
                return "fixed size"
        return self.kind.value


def bar_of_bounds(bounds: InstanceBounds, offer: Offer, instances: int) -> SizeBar | None:
    """Return which of a job's bounds forbids so many instances of an offer; None: none does."""
    count = LimitUnit.INSTANCES
    if instances > bounds.maximum:
        return SizeBar(BarKind.MAXIMUM, maximum=bounds.maximum, unit=count)
    for name, most in bounds.maxima:
        if name in (offer.id, offer.instance_type) and instances > most:
            return SizeBar(BarKind.MAXIMUM_OF_OFFER, name, most, unit=count)
    ceiling = bounds.max_usd_per_hour
    if ceiling is not None and instances * offer.usd_per_hour > ceiling:
        unit = LimitUnit.USD_PER_HOUR
        return SizeBar(BarKind.MAXIMUM_PRICE, maximum=float(ceiling), unit=unit)
    return None
