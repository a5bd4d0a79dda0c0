"""Deadlines and budgets: plans of at most two allocations in sequence.

Within a bound of time or money it is best to hold one allocation until some progress is made, and
then another. Both lie on the upper hull of price and goodput. Time and money are mirror images:

- Deadline: hold the cheaper until the latest progress from which the dearer still meets the
  deadline; least money. A dearer one that is held already comes first: it need not boot again.
- Budget: hold the dearer until the latest progress from which the cheaper still fits in the
  budget; least time.

The change happens at fixed progress, so finish and spend of every draw are linear in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autoscaler.economics.choice.switching import SwitchContext, switches
from autoscaler.economics.pricing.price import hull
from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray

# Seconds of cost that a budget reserves for the last checkpoint.
CHECKPOINT_SECONDS = 30.0
# Ends less likely than this are out of reach.
_LEAST_CHANCE = 0.5


@dataclass(frozen=True, slots=True)
class RemainingConstraints:
    """Deadline in seconds from now, and budget in US dollars from now, with their confidence.

    None: no deadline, or no budget. `confidence` is the probability with which both must be kept.
    """

    seconds: float | None
    usd: float | None
    confidence: float


@dataclass(frozen=True, slots=True)
class Stages:
    """Plan of candidate `first` now and candidate `then` after `change_examples` useful examples.

    Attributes:
        first: index of the first candidate.
        then: index of the second; equal to `first` without a change.
        change_examples: useful examples until the change.
        order_seconds: time from now at which `then` must be ordered; infinite without a change.
        chance: share of draws in which all ends are kept.
        usd: expected remaining spend.
        seconds: expected remaining time.
    """

    first: int
    then: int
    change_examples: float
    order_seconds: float
    chance: float
    usd: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Best that can be promised where no plan keeps the ends at their confidence.

    `seconds` is the earliest finish from now and `usd` the least spend, each by itself.
    `misses_seconds` and `misses_usd` say which end alone can't be kept.
    """

    seconds: float
    usd: float
    misses_seconds: bool
    misses_usd: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """P pairs of allocations in sequence, with K draws of their time and spend.

    Time is ``seconds_before + change * seconds_slope``, (K, P), where `change` is in useful
    examples. Spend in US dollars likewise.
    """

    first: IntArray
    then: IntArray
    least_change: FloatArray
    seconds_before: FloatArray
    seconds_slope: FloatArray
    usd_before: FloatArray
    usd_slope: FloatArray
    reserve_usd: FloatArray


def plan_stages(
    at: SwitchContext, work: float, ends: RemainingConstraints, replan_seconds: float
) -> Stages | Shortfall:
    """Return the best sequence that keeps the ends at their confidence.

    If none does, return the most likely one if it is at least as likely as not; else the
    shortfall.

    Args:
        at: what the job may change to, and at what cost.
        work: useful examples left.
        ends: deadline and budget from now.
        replan_seconds: longest time until the next plan.

    Raises:
        ValueError: no candidate is allowed.
    """
    pairs = _pairs(at, work, dear_first=ends.seconds is None)
    points, kept_draws = _change_points(pairs, work, ends)
    draws = len(at.candidates.goodput)
    needed = min(required_draws(ends.confidence, draws), int(kept_draws.max(initial=0)))
    if needed < _LEAST_CHANCE * draws:
        return _shortfall(pairs, work, ends)
    seconds = pairs.seconds_before.mean(axis=0) + points * pairs.seconds_slope.mean(axis=0)
    usd = pairs.usd_before.mean(axis=0) + points * pairs.usd_slope.mean(axis=0)
    objective = seconds if ends.seconds is None else usd
    best = np.unravel_index(
        np.argmin(np.where(kept_draws >= needed, objective, np.inf)), points.shape
    )
    pair = int(best[1])
    return _stages(
        at,
        (int(pairs.first[pair]), int(pairs.then[pair]), float(points[best])),
        replan_seconds if _is_safe_early(at, pairs, pair, ends) else 0.0,
        (float(kept_draws[best]) / draws, float(usd[best]), float(seconds[best])),
    )


def _is_safe_early(
    at: SwitchContext, pairs: _Pairs, pair: int, ends: RemainingConstraints
) -> bool:
    """Return whether changing too early still keeps the ends.

    It does without a deadline, or if the second allocation is the dearer one.
    """
    price = at.candidates.usd_per_second
    return ends.seconds is None or bool(price[pairs.then[pair]] > price[pairs.first[pair]])


def required_draws(confidence: float, draws: int) -> int:
    """Return the number of draws in which an end must be kept, by the n + 1 rule.

    The rule avoids overconfidence from few draws.
    """
    return min(draws, math.ceil(confidence * (draws + 1) - 1e-9))


def quantile(sample: FloatArray, probability: float) -> float:
    """Return the sample's (K,) quantile at a probability, by the n + 1 rule."""
    return float(np.sort(sample)[required_draws(probability, len(sample)) - 1])


def _stages(
    at: SwitchContext,
    chosen: tuple[int, int, float],
    ahead_seconds: float,
    expected: tuple[float, float, float],
) -> Stages:
    """Return the stages; `then` comes first if it must be ordered within `ahead_seconds`."""
    first, then, change = chosen
    chance, usd, seconds = expected
    order_seconds = math.inf
    if first != then:
        changes = switches(at, first, np.array([then]))
        boot = float(changes.ready_seconds[0]) if changes.trains_during_boot[0] else 0.0
        order_seconds = change / float(at.candidates.rate[first]) - boot
        if order_seconds <= ahead_seconds:
            first, change, order_seconds = then, 0.0, math.inf
    return Stages(first, then, change, order_seconds, chance, usd, seconds)


def _pairs(at: SwitchContext, work: float, dear_first: bool) -> _Pairs:
    """Return every pair of hull corners and the held candidate, in the order of prices.

    A held candidate may come first at any price.
    """
    candidates = at.candidates
    corners = hull(candidates.usd_per_second, candidates.rate, candidates.allowed)
    held = candidates.held
    if held is not None and candidates.allowed[held] and held not in corners:
        corners.append(held)
    if not corners:
        raise ValueError("no allocation is allowed: there is nothing to plan with")
    index = np.array(sorted(corners, key=lambda corner: (corner != held, corner)))
    first, then = (axis.ravel() for axis in np.meshgrid(index, index, indexing="ij"))
    price = candidates.usd_per_second
    if dear_first:
        in_order = price[first] >= price[then]
    else:
        in_order = (price[first] <= price[then]) | (first == held)
    return _linear_pairs(at, work, first[in_order], then[in_order])


def _linear_pairs(at: SwitchContext, work: float, first: IntArray, then: IntArray) -> _Pairs:
    candidates = at.candidates
    price, per_example = candidates.usd_per_second, candidates.seconds_per_example
    entry = switches(at, candidates.held, first)
    change = switches(at, first, then)
    waits = entry.ready_seconds + entry.pause_seconds
    held_price = 0.0 if candidates.held is None else float(price[candidates.held])
    entry_usd = (
        entry.boot_usd
        + entry.pause_seconds * price[first]
        + np.where(entry.trains_during_boot, entry.ready_seconds * held_price, 0.0)
    )
    change_usd = change.boot_usd + change.pause_seconds * price[then]
    usd = price * per_example
    busy = np.where(change.trains_during_boot, change.ready_seconds, 0.0) * candidates.rate[first]
    return _Pairs(
        first=first,
        then=then,
        least_change=np.minimum(busy, work),
        seconds_before=waits + change.lost_seconds + work * per_example[:, then],
        seconds_slope=per_example[:, first] - per_example[:, then],
        usd_before=entry_usd + change_usd + work * usd[:, then],
        usd_slope=usd[:, first] - usd[:, then],
        reserve_usd=CHECKPOINT_SECONDS * np.maximum(price[first], price[then]),
    )


def _change_points(
    pairs: _Pairs, work: float, ends: RemainingConstraints
) -> tuple[FloatArray, IntArray]:
    """Return candidate points of change, (Q, P), and the draws that keep the ends there, (Q, P).

    Points are in useful examples. Expected time and money are linear in them, so the best is a
    bound, or a point where some draw begins to miss an end.
    """
    low, high = _bounds_of_change(pairs, work, ends)
    points = np.concatenate([low, high, pairs.least_change[None], np.full_like(low[:1], work)])
    points = np.clip(points, pairs.least_change, work)
    tolerance = 1e-9 * max(work, 1.0)
    kept_draws = np.zeros(points.shape, dtype=np.int64)
    for first_change, last_change in zip(low, high, strict=True):
        kept_draws += (points >= first_change - tolerance) & (points <= last_change + tolerance)
    return points, kept_draws


def _bounds_of_change(
    pairs: _Pairs, work: float, ends: RemainingConstraints
) -> tuple[FloatArray, FloatArray]:
    """Return the first and last change with which each draw keeps all ends, (K, P) each.

    No change does where low > high.
    """
    low = np.zeros_like(pairs.seconds_before)
    high = np.full_like(low, work)
    if ends.seconds is not None:
        room = ends.seconds - pairs.seconds_before
        low, high = _narrow_bounds(low, high, room, pairs.seconds_slope)
    if ends.usd is not None:
        room = ends.usd - pairs.reserve_usd - pairs.usd_before
        low, high = _narrow_bounds(low, high, room, pairs.usd_slope)
    return low, high


def _narrow_bounds(
    low: FloatArray, high: FloatArray, room: FloatArray, slope: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the bounds narrowed to changes with ``change * slope <= room``."""
    is_flat: BoolArray = slope == 0
    edge = room / np.where(is_flat, 1.0, slope)
    high = np.where(slope > 0, np.minimum(high, edge), high)
    low = np.where(slope < 0, np.maximum(low, edge), low)
    return np.where(is_flat & (room < 0), np.inf, low), high


def _shortfall(pairs: _Pairs, work: float, ends: RemainingConstraints) -> Shortfall:
    is_single = pairs.first == pairs.then
    seconds = pairs.seconds_before + work * pairs.seconds_slope
    usd = pairs.usd_before + work * pairs.usd_slope + pairs.reserve_usd
    earliest = min(quantile(column, ends.confidence) for column in seconds[:, is_single].T)
    least_usd = min(quantile(column, ends.confidence) for column in usd[:, is_single].T)
    return Shortfall(
        seconds=earliest,
        usd=least_usd,
        misses_seconds=ends.seconds is not None and earliest > ends.seconds,
        misses_usd=ends.usd is not None and least_usd > ends.usd,
    )
