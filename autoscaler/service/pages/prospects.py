"""Predictions of a job for the fleet's page: its finish, and what one instance more would buy."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from autoscaler.domain.report import ReportSample
from autoscaler.domain.size_bars import SizeBar
from autoscaler.domain.time_use import CostCategory
from autoscaler.wire.cost_messages import ReceiptView
from autoscaler.wire.outlook_messages import CurvePointView, CurveView, OutlookView

PAYS_FROM: Final = 1.0
"""Worth from which a further dollar makes each example cheaper."""

_POINTS: Final = 40
_LEAST_SAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class SizeStep:
    """SizeStep from one number of instances to the next dearer one.

    Attributes:
        instances: instances afterwards.
        examples_per_second: goodput that the step adds.
        usd_per_hour: price that it adds.
        worth: goodput per dollar of the step, over that of the allocation before with the value
            of time. Above 1 each example becomes cheaper. None: nothing was held before.
        is_available: whether bounds, limits, refusals and budget permit it now.
        forbidden_by: what forbids it now.
    """

    instances: int
    examples_per_second: float
    usd_per_hour: float
    worth: float | None
    is_available: bool = True
    forbidden_by: tuple[SizeBar, ...] = ()

    @property
    def pays(self) -> bool:
        """Whether the step makes each example cheaper."""
        return self.worth is not None and self.worth > PAYS_FROM

    @property
    def bar_share(self) -> float:
        """Share of its bar that is filled: half at 1 x, none where it would lose goodput."""
        return min(max((self.worth or 0.0) / 2.0, 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Prospect:
    """Predicted finish of a job, the steps around its present size, and its course so far.

    `goodputs` are mean goodputs of intervals of equal length, the oldest first. `offer` is the
    offer that the job holds, and `goodput` that of its model on what it holds. `last` is the step
    to the present size, `next` the one beyond; None: unknown, or there is none. `beyond` forbids
    any beyond; None: nothing, or `next` says what.
    """

    outlook: OutlookView
    offer: str | None = None
    goodput: float | None = None
    last: SizeStep | None = None
    next: SizeStep | None = None
    beyond: SizeBar | None = None
    goodputs: tuple[float, ...] = ()
    receipt: ReceiptView | None = None


def prospect_of(
    outlook: OutlookView, curve: CurveView, samples: Sequence[ReportSample]
) -> Prospect:
    """Return the prospect of a job from its outlook, its curve and its reports."""
    held, goodputs = curve.held, course_of(samples)
    if held is None:
        return Prospect(outlook, goodputs=goodputs)
    offer = held.allocation.offer
    points = next((known.points for known in curve.offers if known.offer == offer), ())
    by_instances = {point.allocation.instances: point for point in points}
    count = held.allocation.instances
    value = curve.value_of_time_usd_per_hour or 0.0
    return Prospect(
        outlook,
        offer,
        held.goodput,
        _step(by_instances.get(count - 1), held, value),
        _further(held, by_instances.get(count + 1), value),
        curve.one_more_forbidden_by,
        goodputs,
    )


def productive_share(receipts: Sequence[ReceiptView]) -> float | None:
    """Return the share of the jobs' billed seconds that were useful.

    None if nothing was billed, or if it is unknown what most of it was for.
    """
    billed_seconds = sum(receipt.whole.billed_seconds for receipt in receipts)
    unknown = sum(_seconds_of(receipt, CostCategory.UNKNOWN) for receipt in receipts)
    if billed_seconds <= 0 or unknown > billed_seconds / 2:
        return None
    useful = sum(_seconds_of(receipt, CostCategory.USEFUL) for receipt in receipts)
    return useful / billed_seconds


def _seconds_of(receipt: ReceiptView, category: CostCategory) -> float:
    return sum(part.seconds for part in receipt.whole.parts if part.category is category)


def course_of(samples: Sequence[ReportSample]) -> tuple[float, ...]:
    """Return the mean goodput of intervals of equal length, from the progress that was reported.

    Empty if too little is known.
    """
    if len(samples) < _LEAST_SAMPLES:
        return ()
    times = [sample.at_seconds for sample in samples]
    step_seconds = (times[-1] - times[0]) / _POINTS
    if step_seconds <= 0:
        return ()
    progress = [
        _progress_at(samples, times, times[0] + place * step_seconds)
        for place in range(_POINTS + 1)
    ]
    return tuple(max(later - earlier, 0.0) / step_seconds for earlier, later in pairwise(progress))


def _progress_at(
    samples: Sequence[ReportSample], times: Sequence[float], at_seconds: float
) -> float:
    """Return the progress at a time, on the line between the two samples around it."""
    place = min(max(bisect_right(times, at_seconds), 1), len(samples) - 1)
    before, after = samples[place - 1], samples[place]
    seconds = after.at_seconds - before.at_seconds
    share = 1.0 if seconds <= 0 else min((at_seconds - before.at_seconds) / seconds, 1.0)
    return before.progress_examples + share * (after.progress_examples - before.progress_examples)


def _further(held: CurvePointView, beyond: CurvePointView | None, value: float) -> SizeStep | None:
    return None if beyond is None else _step(held, beyond, value)


def _step(before: CurvePointView | None, after: CurvePointView, value: float) -> SizeStep:
    """Return the step between two sizes. `value` is the value of time in $/h."""
    instances = after.allocation.instances
    if before is None:
        forbidden_by = after.forbidden_by
        return SizeStep(
            instances, after.goodput, after.usd_per_hour, None, after.available, forbidden_by
        )
    examples = after.goodput - before.goodput
    usd = after.usd_per_hour - before.usd_per_hour
    return SizeStep(
        instances,
        examples,
        usd,
        _worth(before, examples, usd, value),
        after.available,
        after.forbidden_by,
    )


def _worth(
    before: CurvePointView, examples_per_second: float, usd_per_hour: float, value: float
) -> float | None:
    """Return marginal over average goodput per dollar; None if nothing is paid for."""
    paid = before.usd_per_hour + value
    if before.goodput <= 0 or paid <= 0 or usd_per_hour <= 0:
        return None
    return (examples_per_second / usd_per_hour) / (before.goodput / paid)
