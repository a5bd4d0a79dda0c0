"""Why a job gets what it gets, in one line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Action
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.change import Change
from autoscaler.economics.facts import Facts, Option
from autoscaler.economics.supply import Supply, fits
from autoscaler.economics.wishes import Why
from autoscaler.economics.wording import (
    duration,
    money,
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
    count as many times as the job's weight says, which is in them. `rival_minimum` is the minimum
    of instances that the rival was below, where it was given more for that alone.
    """

    limit: Limit
    own_usd_per_second: float
    rival: str | None = None
    rival_usd_per_second: float = 0.0
    took_it: bool = False
    own_weight: float = 1.0
    rival_weight: float = 1.0
    rival_minimum: int | None = None


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


def reason(facts: Facts, around: Surroundings, contest: Contest | None = None) -> str:
    """One line: what changes, what that adds and costs, and by which rule.

    Args:
        facts: what the job gets, and what it would have by itself.
        around: the supply and its use.
        contest: why it gets less than it wished, if it does.
    """
    job = facts.job
    if facts.why is Why.STOPS:
        line = f"stop {job.id}: {facts.aim.stop}"
    elif facts.target is None:
        lost = _why_nothing(facts, around) if contest is None else _lost(contest, around)
        line = f"wait {job.id}: {lost}"
    elif facts.given is None:
        line = f"hold {job.id} at {facts.target}: {_what_is_unknown(job, around.supply)}"
    else:
        line = _change(facts, facts.given, around, contest)
    return line if facts.aim.note is None else f"{line}; {facts.aim.note}"


def place(offer: Offer, beside: Offer | None = None) -> str:
    """``g6.12xlarge (spot, us-east-1b)``: what the offer is, as far as that tells something."""
    details = []
    differs = beside is not None and beside.purchase is not offer.purchase
    if offer.is_paid:
        details.append("paid already")
    elif differs or offer.purchase in (Purchase.SPOT, Purchase.FLEX_START):
        details.append(offer.purchase.value)
    if offer.zone not in ("", "local"):
        details.append(offer.zone)
    return f"{offer.instance_type} ({', '.join(details)})" if details else offer.instance_type


def _change(facts: Facts, given: Option, around: Surroundings, contest: Contest | None) -> str:
    job, held = facts.job, facts.held
    if held is None:
        start = f"start {job.id} on {_size(given)}: {_start(facts, given)}{_narrowed(job)}"
        return start if contest is None else f"{start}; {_no_room_for(facts, contest, around)}"
    lost = None if contest is None else _lost(contest, around)
    if held.size == given.size:
        stay = job.bounds_reason or _stay(facts, held, around)
        return f"hold {job.id} at {_size(given)}: {lost or stay}"
    move = _move(job.id, held, given)
    if job.bounds_reason is not None and held.instances > job.instances.maximum:
        return f"{move}: {job.bounds_reason}"
    if given.change is None or (lost is not None and given.change.rate < 0):
        return f"{move}: {lost}"
    gain = f"{move}: {_gain(given.change)}{_payback(facts, held, given, given.change)}"
    return gain + _by_checkpoint(given.change)


def _narrowed(job: JobSnapshot) -> str:
    return "" if job.bounds_reason is None else f"; {job.bounds_reason}"


def _by_checkpoint(change: Change) -> str:
    if not change.is_by_checkpoint:
        return ""
    paid = f", {money(change.carried_usd)} on the way" if change.carried_usd > 0 else ""
    return f"; by its checkpoint{paid}"


def _size(option: Option, beside: Offer | None = None) -> str:
    offer, used = option.offer, option.devices_used
    size = f"{option.instances} x {place(offer, beside)}"
    return size if used == offer.devices else f"{size}, {used} of {offer.devices} devices each"


def _move(job: str, held: Option, given: Option) -> str:
    if held.offer.id != given.offer.id:
        return f"move {job} from {_size(held, given.offer)} to {_size(given, held.offer)}"
    before = held.instances * held.devices_used
    action = Action.GROW if given.instances * given.devices_used > before else Action.SHRINK
    if held.devices_used == given.devices_used:
        return f"{action.value} {job} {held.instances} -> {_size(given)}"
    return f"{action.value} {job} from {_size(held)} to {_size(given)}"


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


def _payback(facts: Facts, held: Option, given: Option, change: Change) -> str:
    if facts.why is not Why.LEAST_COST or not facts.has_its_wish:
        return ""
    if not given.measured and given.mean_usd >= held.mean_usd:
        share = percent(given.better)
        return f"; not measured there, but it pays in {share} of draws and there is a way back"
    if change.boot_seconds > 0 and change.payback_seconds is not None:
        back = duration(change.payback_seconds)
        paid_back = f"; pays back its {duration(change.boot_seconds)} boot in {back}"
        return paid_back if change.works_on else f"{paid_back}, for which nothing trains"
    return ""


def _start(facts: Facts, given: Option) -> str:
    waiting = f"waiting costs {per_hour(facts.aim.value_of_time)}"
    price, cheapest = given.usd_per_second, facts.cheapest
    if cheapest is None:
        return f"{number(given.rate)} ex/s for {per_hour(price)}, {_best_of(facts)}"
    if price <= cheapest.usd_per_second:
        return f"cheapest that can run it; {waiting}"
    dearer = signed_per_hour(price - cheapest.usd_per_second)
    times = number(given.rate / cheapest.rate)
    return f"{dearer} over the cheapest, but {waiting} and it may be {times} times as fast"


def _best_of(facts: Facts) -> str:
    if facts.why is Why.STAGES:
        is_in_time = facts.job.objective.deadline_seconds is not None
        return "the cheapest that does" if is_in_time else "the fastest that does"
    return f"the least cost to the end; waiting costs {per_hour(facts.aim.value_of_time)}"


def _stay(facts: Facts, held: Option, around: Surroundings) -> str:
    trained, stages = facts.job.trained, facts.aim.stages
    if facts.why is Why.UNDER_WAY:
        training = trained.instances if trained and trained.offer == held.offer.id else 0
        if training > held.instances:
            return f"{training - held.instances} on the way out"
        return f"{training} of {held.instances} train so far"
    if facts.why is Why.UNMEASURED:
        return "not measured there yet"
    if facts.has_its_wish and stages is not None and facts.later is not None:
        if stages.then == stages.first:
            return _best_of(facts)
        return f"{_size(facts.later)} in {duration(stages.order_seconds)}"
    return _no_better(facts, held, around)


def _no_better(facts: Facts, held: Option, around: Surroundings) -> str:
    """The best alternative, and why it does not pay: the best of the faster ones, if any is."""
    other = facts.other
    if not facts.has_faster:
        full = _full_for_one_more(facts.job, held, around)
        if full is not None:
            return f"no room: {_use(full, around)}"
    if other is None or other.change is None:
        return "nothing else is allowed"
    name = _short_size(held, other)
    return f"{name} would {_would(other.change)}{_why_not(facts, held, other, other.change)}"


def _short_size(held: Option, other: Option) -> str:
    if (held.offer.id, held.devices_used) == (other.offer.id, other.devices_used):
        return f"{other.instances} x"
    return _size(other, held.offer)


def _would(change: Change) -> str:
    rate, usd = signed(change.rate), signed_per_hour(change.usd_per_second)
    per_usd = f"{number(change.marginal)} ex/s per $/h, average now {number(change.average)}"
    if change.usd_per_second == 0 or (change.rate > 0) != (change.usd_per_second > 0):
        return f"add {rate} ex/s and {usd}"
    if change.rate > 0:
        return f"add {rate} ex/s for {usd} = {per_usd}"
    return f"save {per_hour(-change.usd_per_second)} for {rate} ex/s = {per_usd}"


def _why_not(facts: Facts, held: Option, best: Option, change: Change) -> str:
    """Empty where the marginal and the average say it."""
    if change.payback_seconds is None or not facts.has_its_wish:
        return ""
    if best.mean_usd >= held.mean_usd:
        left = duration(facts.work / held.rate)
        return f", but does not pay back what changing costs within {left}"
    return f", but is better in only {percent(best.better)} of draws"


def _full_for_one_more(job: JobSnapshot, held: Option, around: Surroundings) -> int | None:
    """The limit that does not bear one more instance of what is held, if bounds would."""
    if held.instances >= job.instances.most_of(held.offer):
        return None
    supply = around.supply
    uses = supply.unit_uses[:, supply.terms.index[held.offer.id]]
    (full,) = np.nonzero(~fits(around.used + uses, supply.maximum) & (uses > 0))
    return int(full[0]) if len(full) else None


def _use(limit: int, around: Surroundings) -> str:
    found = around.supply.limits[limit]
    used, most = number(float(around.used[limit])), number(found.maximum)
    if found.unit is LimitUnit.USD_PER_HOUR:
        return f"{found.name} ${used} of ${most}/h in use"
    return f"{found.name} {used} of {most} in use"


def _why_nothing(facts: Facts, around: Surroundings) -> str:
    job, supply = facts.job, around.supply
    if facts.why is not Why.NOTHING_ALLOWED:
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
    return "no room: the limits leave no instance that its bounds allow"


def _what_is_unknown(job: JobSnapshot, supply: Supply) -> str:
    if job.held is not None and supply.offer(job.held.offer) is None:
        return "nobody offers it any more, so nothing is compared with it"
    return "there is no throughput model of its device, so nothing is compared with it"


def _no_room_for(facts: Facts, contest: Contest, around: Surroundings) -> str:
    use = _use(around.supply.limits.index(contest.limit), around)
    wished = "more" if facts.wished is None else _size(facts.wished)
    return f"no room for {wished}: {use}"


def _weighted(usd_per_second: float, weight: float) -> str:
    bid = per_hour(usd_per_second)
    return bid if abs(weight - 1.0) < _LEVEL else f"{bid} at weight {number(weight)}"


def _lost(contest: Contest, around: Surroundings) -> str:
    noun = _NOUNS[contest.limit.unit]
    own = _weighted(contest.own_usd_per_second, contest.own_weight)
    theirs = _weighted(contest.rival_usd_per_second, contest.rival_weight)
    if contest.rival_minimum is not None:
        return (
            f"{contest.rival} needs {noun} of `{contest.limit.name}` for its minimum of "
            f"{contest.rival_minimum} instances; it bids {theirs}, this job {own}"
        )
    if contest.took_it:
        return (
            f"{contest.rival} bids {theirs} for {noun} of `{contest.limit.name}`, this job {own}"
        )
    use = _use(around.supply.limits.index(contest.limit), around)
    beside = "" if contest.rival is None else f", {theirs} to {contest.rival}"
    return f"no room: {use}; {noun} is worth {own} to this job{beside}"
