"""Why a job gets what it gets, in one line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Action
from autoscaler.economics.change import Change, change_to
from autoscaler.economics.exploration import fewest
from autoscaler.economics.supply import Supply, fits
from autoscaler.economics.wishes import Why, Wish
from autoscaler.economics.wording import (
    duration,
    number,
    per_hour,
    percent,
    signed,
    signed_per_hour,
)
from autoscaler.goodput.throughput import FloatArray

_NOUNS = {
    LimitUnit.DEVICES: "a device",
    LimitUnit.INSTANCES: "an instance",
    LimitUnit.USD_PER_HOUR: "$1/h",
}
# A change of goodput by less than this share is none.
_LEVEL = 1e-3


@dataclass(frozen=True, slots=True)
class Contest:
    """Why a limit gave a job less than it wished.

    `own_usd_per_second` is what a unit of it is worth to the job, `rival_usd_per_second` to the
    `rival`: the one that was given more of it (`took_it`), or else the one that holds it. Both
    count as many times as the job's weight says, which is in them.
    """

    limit: Limit
    own_usd_per_second: float
    rival: str | None = None
    rival_usd_per_second: float = 0.0
    took_it: bool = False
    own_weight: float = 1.0
    rival_weight: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """What else a reason may name: the supply, and what the plan uses of its limits, (R,)."""

    supply: Supply
    used: FloatArray


def action_of(current: Allocation | None, target: Allocation | None, stops: bool) -> Action:
    """What a decision changes."""
    if stops:
        return Action.STOP
    if target is None:
        return Action.WAIT
    if current is None:
        return Action.START
    if current == target:
        return Action.HOLD
    if current.offer != target.offer:
        return Action.MOVE
    return Action.GROW if target.devices > current.devices else Action.SHRINK


def reason(
    wish: Wish, target: Allocation | None, around: Surroundings, contest: Contest | None = None
) -> str:
    """One line: what changes, what that adds and costs, and by which rule.

    Args:
        wish: what the job would have by itself.
        target: what it gets; None for nothing.
        around: the supply and its use.
        contest: why it gets less than it wished, if it does.
    """
    job = wish.job
    index = wish.at.candidates.index(target)
    if wish.why is Why.STOPS:
        line = f"stop {job.id}: {wish.aim.stop}"
    elif target is None:
        lost = _why_nothing(wish, around) if contest is None else _lost(contest, around)
        line = f"wait {job.id}: {lost}"
    elif index is None:
        line = f"hold {job.id} at {target}: {_what_is_unknown(wish, around.supply)}"
    else:
        line = _change(wish, index, around, contest)
    return line if wish.aim.note is None else f"{line}; {wish.aim.note}"


def place(offer: Offer, beside: Offer | None = None) -> str:
    """``g6.12xlarge (spot, us-east-1b)``: what the offer is, as far as that tells something."""
    details = []
    differs = beside is not None and beside.purchase is not offer.purchase
    if offer.is_paid:
        details.append("paid already")
    elif offer.purchase is Purchase.SPOT or differs:
        details.append(offer.purchase.value)
    if offer.zone not in ("", "local"):
        details.append(offer.zone)
    return f"{offer.instance_type} ({', '.join(details)})" if details else offer.instance_type


def _change(wish: Wish, target: int, around: Surroundings, contest: Contest | None) -> str:
    job, held = wish.job, wish.at.candidates.held
    if held is None:
        start = f"start {job.id} on {_size(wish, target)}: {_start(wish, target)}"
        return start if contest is None else f"{start}; {_no_room_for(wish, contest, around)}"
    lost = None if contest is None else _lost(contest, around)
    if held == target:
        return f"hold {job.id} at {_size(wish, target)}: {lost or _stay(wish, target, around)}"
    change = change_to(wish, target)
    if lost is not None and change.rate < 0:
        return f"{_move(wish, held, target)}: {lost}"
    return f"{_move(wish, held, target)}: {_gain(change)}{_payback(wish, target, change)}"


def _size(wish: Wish, index: int, beside: Offer | None = None) -> str:
    candidates = wish.at.candidates
    offer = candidates.offer_of(index)
    size = f"{candidates.sizes.instances[index]} x {place(offer, beside)}"
    used = int(candidates.sizes.devices_used[index])
    return size if used == offer.devices else f"{size}, {used} of {offer.devices} devices each"


def _move(wish: Wish, held: int, target: int) -> str:
    candidates, job = wish.at.candidates, wish.job.id
    before, after = candidates.allocation(held), candidates.allocation(target)
    action = action_of(before, after, stops=False)
    if action is Action.MOVE:
        old, new = candidates.offer_of(held), candidates.offer_of(target)
        return f"move {job} from {_size(wish, held, new)} to {_size(wish, target, old)}"
    if before.devices_used == after.devices_used:
        return f"{action.value} {job} {before.instances} -> {_size(wish, target)}"
    return f"{action.value} {job} from {_size(wish, held)} to {_size(wish, target)}"


def _gain(change: Change) -> str:
    rate, usd = signed(change.rate), signed_per_hour(change.usd_per_second)
    average = f"average now {number(change.average)} (value of time counted)"
    if change.usd_per_second == 0:
        return f"{rate} ex/s at the same price"
    if abs(change.rate) < _LEVEL * change.rate_before:
        return f"{usd} at the same goodput"
    if (change.rate > 0) != (change.usd_per_second > 0):
        return f"{rate} ex/s and {usd}"
    per_usd = f"{number(change.marginal)} ex/s per $/h"
    if change.usd_per_second > 0:
        return f"{rate} ex/s for {usd} = {per_usd}, {average}"
    return f"saves {per_hour(-change.usd_per_second)} for {rate} ex/s = {per_usd}, {average}"


def _payback(wish: Wish, target: int, change: Change) -> str:
    if wish.why is not Why.LEAST_COST or target != wish.target:
        return ""
    candidates = wish.at.candidates
    expected = wish.cost.mean(axis=0)
    if not candidates.measured[target] and expected[target] >= expected[candidates.held]:
        share = percent(float((wish.cost[:, target] < wish.cost[:, candidates.held]).mean()))
        return f"; not measured there, but it pays in {share} of draws and there is a way back"
    if change.boot_seconds > 0 and change.payback_seconds is not None:
        back = duration(change.payback_seconds)
        paid_back = f"; pays back its {duration(change.boot_seconds)} boot in {back}"
        return paid_back if change.works_on else f"{paid_back}, for which nothing trains"
    return ""


def _start(wish: Wish, target: int) -> str:
    candidates = wish.at.candidates
    waiting = f"waiting costs {per_hour(wish.aim.value_of_time)}"
    price, rate = candidates.usd_per_second, candidates.rate
    if wish.why is not Why.FIRST_START:
        return f"{number(rate[target])} ex/s for {per_hour(price[target])}, {_best_of(wish)}"
    few = fewest(candidates)
    cheapest = int(np.argmin(np.where(few, price, np.inf)))
    if price[target] <= price[cheapest]:
        return f"cheapest that can run it; {waiting}"
    dearer = signed_per_hour(float(price[target] - price[cheapest]))
    times = number(float(rate[target] / rate[cheapest]))
    return f"{dearer} over the cheapest, but {waiting} and it may be {times} times as fast"


def _best_of(wish: Wish) -> str:
    if wish.why is Why.STAGES:
        return "the cheapest that does" if _has_deadline(wish) else "the fastest that does"
    return f"the least cost to the end; waiting costs {per_hour(wish.aim.value_of_time)}"


def _has_deadline(wish: Wish) -> bool:
    return wish.job.objective.deadline_seconds is not None


def _stay(wish: Wish, held: int, around: Surroundings) -> str:
    job, candidates = wish.job, wish.at.candidates
    if wish.why is Why.UNDER_WAY:
        trained = job.trained.instances if job.trained and job.trained.offer == _id(wish) else 0
        size = int(candidates.sizes.instances[held])
        if trained > size:
            return f"{trained - size} on the way out"
        return f"{trained} of {size} train so far"
    if wish.why is Why.UNMEASURED:
        return "not measured there yet"
    stages = wish.aim.stages
    if wish.target == held and stages is not None:
        if stages.then == stages.first:
            return _best_of(wish)
        return f"{_size(wish, stages.then)} in {duration(stages.order_seconds)}"
    return _no_better(wish, held, around)


def _id(wish: Wish) -> str | None:
    return None if wish.job.held is None else wish.job.held.offer


def _no_better(wish: Wish, held: int, around: Surroundings) -> str:
    """The best alternative, and why it does not pay: the best of the faster ones, if any is."""
    candidates, expected = wish.at.candidates, wish.expected_usd
    others = candidates.allowed.copy()
    others[held] = False
    faster = others & (candidates.rate > candidates.rate[held])
    if not faster.any():
        full = _full_for_one_more(wish, held, around)
        if full is not None:
            return f"no room: {_use(full, around)}"
        if not others.any():
            return "nothing else is allowed"
    among = faster if faster.any() else others
    best = int(np.argmin(np.where(among, expected, np.inf)))
    change = change_to(wish, best)
    name = _short_size(wish, held, best)
    return f"{name} would {_would(change)}{_why_not(wish, held, best, change)}"


def _short_size(wish: Wish, held: int, index: int) -> str:
    candidates = wish.at.candidates
    here, there = candidates.allocation(held), candidates.allocation(index)
    if (here.offer, here.devices_used) == (there.offer, there.devices_used):
        return f"{there.instances} x"
    return _size(wish, index, candidates.offer_of(held))


def _would(change: Change) -> str:
    rate, usd = signed(change.rate), signed_per_hour(change.usd_per_second)
    per_usd = f"{number(change.marginal)} ex/s per $/h, average now {number(change.average)}"
    if change.usd_per_second == 0 or (change.rate > 0) != (change.usd_per_second > 0):
        return f"add {rate} ex/s and {usd}"
    if change.rate > 0:
        return f"add {rate} ex/s for {usd} = {per_usd}"
    return f"save {per_hour(-change.usd_per_second)} for {rate} ex/s = {per_usd}"


def _why_not(wish: Wish, held: int, best: int, change: Change) -> str:
    """Empty where the marginal and the average say it."""
    if change.payback_seconds is None or wish.target != held:
        return ""
    expected = wish.cost.mean(axis=0)
    if expected[best] >= expected[held]:
        left = duration(wish.work / float(wish.at.candidates.rate[held]))
        return f", but does not pay back what changing costs within {left}"
    share = float((wish.cost[:, best] < wish.cost[:, held]).mean())
    return f", but is better in only {percent(share)} of draws"


def _full_for_one_more(wish: Wish, held: int, around: Surroundings) -> int | None:
    """The limit that does not bear one more instance of what is held, if bounds would."""
    sizes, supply = wish.at.candidates.sizes, around.supply
    if sizes.instances[held] >= wish.job.instances.most_of(wish.at.candidates.offer_of(held)):
        return None
    uses = supply.unit_uses[:, sizes.offer[held]]
    (full,) = np.nonzero(~fits(around.used + uses, supply.maximum) & (uses > 0))
    return int(full[0]) if len(full) else None


def _use(limit: int, around: Surroundings) -> str:
    found = around.supply.limits[limit]
    used, most = number(float(around.used[limit])), number(found.maximum)
    if found.unit is LimitUnit.USD_PER_HOUR:
        return f"{found.name} ${used} of ${most}/h in use"
    return f"{found.name} {used} of {most} in use"


def _why_nothing(wish: Wish, around: Surroundings) -> str:
    job, supply = wish.job, around.supply
    if wish.why is not Why.NOTHING_ALLOWED:
        return "no room"
    permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
    if not permitted:
        return "no offer is one that it may use"
    kinds = {offer.device_kind for offer in permitted}
    if not kinds & set(job.models):
        return f"no throughput model of {', '.join(sorted(kinds))}"
    open_offers = [offer for offer in permitted if offer.id not in supply.unavailable]
    if not open_offers:
        return f"{', '.join(offer.id for offer in permitted)} refused for now"
    if job.objective.budget_usd is not None:
        return "nothing that it may use now can be paid from what is left of its budget"
    return "its bounds and the limits leave nothing that it can run on"


def _what_is_unknown(wish: Wish, supply: Supply) -> str:
    held = wish.job.held
    if held is not None and supply.offer(held.offer) is None:
        return "nobody offers it any more, so nothing is compared with it"
    return "there is no throughput model of its device, so nothing is compared with it"


def _no_room_for(wish: Wish, contest: Contest, around: Surroundings) -> str:
    use = _use(around.supply.limits.index(contest.limit), around)
    wished = "more" if wish.target is None else _size(wish, wish.target)
    return f"no room for {wished}: {use}"


def _weighted(usd_per_second: float, weight: float) -> str:
    bid = per_hour(usd_per_second)
    return bid if abs(weight - 1.0) < _LEVEL else f"{bid} at weight {number(weight)}"


def _lost(contest: Contest, around: Surroundings) -> str:
    noun = _NOUNS[contest.limit.unit]
    own = _weighted(contest.own_usd_per_second, contest.own_weight)
    theirs = _weighted(contest.rival_usd_per_second, contest.rival_weight)
    if contest.took_it:
        return (
            f"{contest.rival} bids {theirs} for {noun} of `{contest.limit.name}`, worth {own} here"
        )
    use = _use(around.supply.limits.index(contest.limit), around)
    beside = "" if contest.rival is None else f", {theirs} to {contest.rival}"
    return f"no room: {use}; {noun} is worth {own} here{beside}"
