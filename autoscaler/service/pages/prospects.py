"""Predictions of a job for the fleet's page: its finish, and what one instance more would buy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.wire.outlook_messages import CurvePointView, CurveView, OutlookView

PAYS_FROM: Final = 1.0
"""Worth from which a further dollar makes each example cheaper."""


@dataclass(frozen=True, slots=True)
class SizeStep:
    """SizeStep from one number of instances to the next dearer one.

    Attributes:
        instances: instances afterwards.
        examples_per_second: goodput that the step adds.
        usd_per_hour: price that it adds.
        worth: goodput per dollar of the step, over that of the allocation before with the value
            of time. Above 1 each example becomes cheaper. None: nothing was held before.
        is_available: whether bounds, limits and refusals permit it now.
    """

    instances: int
    examples_per_second: float
    usd_per_hour: float
    worth: float | None
    is_available: bool = True

    @property
    def pays(self) -> bool:
        """Whether the step makes each example cheaper."""
        return self.worth is not None and self.worth > PAYS_FROM


@dataclass(frozen=True, slots=True)
class Prospect:
    """Predicted finish of a job, and the steps around its present size.

    `last` is the step to the present size, `next` the one beyond; None: unknown, or there is none.
    `offer` is the offer that the job holds.
    """

    outlook: OutlookView
    offer: str | None = None
    last: SizeStep | None = None
    next: SizeStep | None = None


def prospect_of(outlook: OutlookView, curve: CurveView) -> Prospect:
    """Return the prospect of a job from its outlook and its curve."""
    held = curve.held
    if held is None:
        return Prospect(outlook)
    offer = held.allocation.offer
    points = next((known.points for known in curve.offers if known.offer == offer), ())
    by_instances = {point.allocation.instances: point for point in points}
    count = held.allocation.instances
    value = curve.value_of_time_usd_per_hour or 0.0
    return Prospect(
        outlook,
        offer,
        _step(by_instances.get(count - 1), held, value),
        _further(held, by_instances.get(count + 1), value),
    )


def _further(held: CurvePointView, beyond: CurvePointView | None, value: float) -> SizeStep | None:
    return None if beyond is None else _step(held, beyond, value)


def _step(before: CurvePointView | None, after: CurvePointView, value: float) -> SizeStep:
    """Return the step between two sizes. `value` is the value of time in $/h."""
    instances = after.allocation.instances
    if before is None:
        return SizeStep(instances, after.goodput, after.usd_per_hour, None, after.available)
    examples = after.goodput - before.goodput
    usd = after.usd_per_hour - before.usd_per_hour
    return SizeStep(
        instances, examples, usd, _worth(before, examples, usd, value), after.available
    )


def _worth(
    before: CurvePointView, examples_per_second: float, usd_per_hour: float, value: float
) -> float | None:
    """Return marginal over average goodput per dollar; None if nothing is paid for."""
    paid = before.usd_per_hour + value
    if before.goodput <= 0 or paid <= 0 or usd_per_hour <= 0:
        return None
    return (examples_per_second / usd_per_hour) / (before.goodput / paid)
