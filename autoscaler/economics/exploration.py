"""Choosing without knowing: the way back, the first start, and looks beside the running job.

Nothing here is for what can't be undone: deadlines and budgets count on quantiles instead.
"""

from __future__ import annotations

import numpy as np

from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.candidates import Candidates, start_seconds
from autoscaler.economics.supply import BoolArray, fits
from autoscaler.economics.switching import Ground
from autoscaler.goodput.throughput import FloatArray

MOST_LOOKS = 3
# Between two sizes that were both measured, a change must be for the better in so many draws.
SURE_SHARE = 0.6


def expected_cost(
    candidates: Candidates, cost: FloatArray, way_back: FloatArray | None
) -> FloatArray:
    """V of each candidate, $ until the work is done, (A,): what to minimise.

    The mean of J; for a size that was not measured, of what it may cost or the way back, draw by
    draw: ``mean_k min(J_k(b), J_k(a by way of b))``. A purchase can be undone.

    Args:
        candidates: A of them.
        cost: J, (K, A).
        way_back: J of going there for a look and back to what is held, (K, A); None where
            nothing is held.
    """
    if way_back is None:
        return _mean(cost)
    return _mean(np.where(candidates.measured, cost, np.minimum(cost, way_back)))


def surely_better(candidates: Candidates, cost: FloatArray) -> BoolArray:
    """Where a change from what is held would not rest on chance, (A,).

    Between measured sizes it must pay in `SURE_SHARE` of the draws, the same for both. `cost` is
    as in `expected_cost`.
    """
    held = candidates.held
    if held is None or not candidates.measured[held]:
        return np.ones(len(candidates), dtype=np.bool_)
    share: FloatArray = (cost < cost[:, [held]]).mean(axis=0)
    sure: BoolArray = np.logical_or(share >= SURE_SHARE, ~candidates.measured)
    return sure


def worth_starting_on(candidates: Candidates, value_of_time: float) -> BoolArray:
    """What a job may start on of which nothing was measured, (A,); something must be allowed.

    The fewest instances of the cheapest, and of those dearer by less than waiting on the cheapest
    costs: buying one of them wrongly is then the smaller loss.
    """
    few = fewest(candidates)
    price = candidates.usd_per_second
    dearer = price - price[few].min()
    worth: BoolArray = few & np.logical_or(dearer <= 0, dearer < value_of_time)
    return worth


def fewest(candidates: Candidates) -> BoolArray:
    """Those of the fewest instances that are allowed, (A,)."""
    instances, allowed = candidates.sizes.instances, candidates.allowed
    few: BoolArray = allowed & (instances == instances[allowed].min())
    return few


def side_look(at: Ground, job: JobSnapshot, cost: FloatArray) -> int | None:
    """The candidate to run beside the job until it is measured; None where that does not pay.

    One instance of a kind of device that the job has never run on, if knowing what it earns
    lowers the expected cost of the best by more than it costs to look:
    ``mean_k min(min_c mean J(c), min_q J_k(q)) + look < min mean J``, c of other kinds, q of it.
    `cost` is as in `expected_cost`.
    """
    candidates = at.candidates
    if candidates.held is None or job.looks >= MOST_LOOKS:
        return None
    open_to_choice = candidates.allowed.copy()
    open_to_choice[candidates.held] = True
    cost = np.where(open_to_choice, cost, np.inf)
    least = float(_mean(cost).min())
    looks = []
    for kind in _unmeasured_kinds(job, candidates, candidates.held):
        of_kind = _of_kind(candidates, kind)
        look = _cheapest_look(at, of_kind)
        if look is None:
            continue
        others = float(_mean(cost[:, ~of_kind]).min())
        informed = float(np.minimum(cost[:, of_kind].min(axis=1), others).mean())
        looks.append((informed + _look_usd(at, look) - least, look))
    gain, found = min(looks, default=(0.0, -1))
    return found if gain < 0 else None


def _unmeasured_kinds(job: JobSnapshot, candidates: Candidates, held: int) -> list[str]:
    offered = {offer.device_kind for offer in candidates.offers}
    known = {kind for kind, model in job.models.items() if model.measured}
    return sorted((offered & set(job.models)) - known - {candidates.offer_of(held).device_kind})


def _of_kind(candidates: Candidates, kind: str) -> BoolArray:
    kinds = np.array([offer.device_kind == kind for offer in candidates.offers], dtype=np.bool_)
    return np.asarray(kinds[candidates.sizes.offer])


def _cheapest_look(at: Ground, of_kind: BoolArray) -> int | None:
    """One instance with all its devices, for which there is room beside all that is held."""
    candidates = at.candidates
    devices = np.array([offer.devices for offer in candidates.offers])[candidates.sizes.offer]
    whole = (candidates.sizes.instances == 1) & (candidates.sizes.devices_used == devices)
    has_room = fits(candidates.uses, at.room).all(axis=0)
    (found,) = np.nonzero(of_kind & whole & has_room & candidates.allowed)
    if not len(found):
        return None
    return int(found[np.argmin(candidates.usd_per_second[found])])


def _look_usd(at: Ground, look: int) -> float:
    offer = at.candidates.offer_of(look)
    seconds = start_seconds(at.switching, offer) + at.switching.measure_seconds
    return offer.usd_per_second * max(seconds, offer.minimum_billed_seconds)


def _mean(cost: FloatArray) -> FloatArray:
    mean: FloatArray = cost.mean(axis=0)
    return mean
