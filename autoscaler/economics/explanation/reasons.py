"""One-line reasons for the decisions about jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.plan import Action
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.choice.demands import ChoiceReason
from autoscaler.economics.explanation.change import GoodputChange
from autoscaler.economics.explanation.facts import Facts, Option
from autoscaler.economics.pricing.wording import (
    duration,
    money,
    number,
    per_hour,
    percent,
    signed,
    signed_per_hour,
)
from autoscaler.economics.supply.supply import Supply, fits
from autoscaler.goodput.throughput import FloatArray

_NOUNS = {
    LimitUnit.DEVICES: "a device",
    LimitUnit.INSTANCES: "an instance",
    LimitUnit.USD_PER_HOUR: "$1/h",
}
# Relative change of goodput or weight below which a reason calls it unchanged.
_UNCHANGED_SHARE = 1e-3


@dataclass(frozen=True, slots=True)
class Contest:
    """Limit that gave a job less than it would choose, and the job that uses it instead.

    Attributes:
        limit: the binding limit.
        own_usd_per_second: worth of a unit of the limit to the job, times its weight.
        rival: job that received more of the limit, or else that holds it; None: nobody.
        rival_usd_per_second: worth of a unit to the rival, times its weight: on average of those
            that it received more, or else of all that it holds.
        took_it: whether the rival received more of the limit in this plan.
        own_weight: weight of the job.
        rival_weight: weight of the rival.
        rival_minimum: the rival's minimum of instances, if it received more only to reach that.
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
class LimitUsage:
    """Supply, and the plan's use of each of its R limits, (R,)."""

    supply: Supply
    used: FloatArray


_NO_OFFER_TEXT = "no offer is within its bounds"


def action_of(current: Allocation | None, target: Allocation | None, stops: bool) -> Action:
    """Return the kind of change from the current to the target allocation."""
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


def reason(facts: Facts, around: LimitUsage, contest: Contest | None = None) -> str:
    """Return one line with the change, its gain and cost, and the rule behind it.

    Args:
        facts: the job's allocation, and its own choice.
        around: the supply and its use.
        contest: limit behind an allocation below the job's own choice; None: none.
    """
    job = facts.job
    if facts.why is ChoiceReason.STOPS:
        line = f"stop {job.id}: {facts.requirement.stop}"
    elif facts.target is None:
        cause = (
            _describe_why_nothing(facts, around)
            if contest is None
            else _describe_contest(contest, around)
        )
        line = f"wait {job.id}: {cause}"
    elif facts.given is None:
        line = f"hold {job.id} at {facts.target}: {_describe_unknown(job, around.supply)}"
    else:
        line = _describe_change(facts, facts.given, around, contest)
    return line if facts.requirement.note is None else f"{line}; {facts.requirement.note}"


def place(offer: Offer, beside: Offer | None = None) -> str:
    """Return an offer's type with purchase model and zone, as ``g6.12xlarge (spot, us-east-1b)``.

    Purchase model and zone are shown only where they inform. `beside` is an offer to tell it from.
    """
    details = []
    differs = beside is not None and beside.purchase is not offer.purchase
    if offer.is_paid:
        details.append("paid already")
    elif differs or offer.purchase in (Purchase.SPOT, Purchase.FLEX_START):
        details.append(offer.purchase.value)
    if offer.zone not in ("", "local"):
        details.append(offer.zone)
    return f"{offer.instance_type} ({', '.join(details)})" if details else offer.instance_type


def _describe_change(
    facts: Facts, given: Option, around: LimitUsage, contest: Contest | None
) -> str:
    job, held = facts.job, facts.held
    if held is None:
        wait_seconds = given.offer.fill_seconds
        wait_text = f", capacity expected in {duration(wait_seconds)}" if wait_seconds else ""
        start_text = (
            f"start {job.id} on {_size(given)}{wait_text}: "
            f"{_describe_start(facts, given)}{_bounds_note(job)}"
        )
        return (
            start_text
            if contest is None
            else f"{start_text}; {_describe_no_room(facts, contest, around)}"
        )
    contest_text = None if contest is None else _describe_contest(contest, around)
    if held.size == given.size:
        stay_text = job.bounds_reason or _describe_stay(facts, held, around)
        return f"hold {job.id} at {_size(given)}: {contest_text or stay_text}"
    move_text = _describe_move(job.id, held, given)
    if job.bounds_reason is not None and held.instances > job.instances.maximum:
        return f"{move_text}: {job.bounds_reason}"
    if given.change is None or (contest_text is not None and given.change.rate < 0):
        return f"{move_text}: {contest_text}"
    gain_text = f"{move_text}: {_describe_gain(given.change)}"
    payback_text = _describe_payback(facts, held, given, given.change)
    return gain_text + payback_text + _checkpoint_note(given.change) + _restart_note(job)


def _bounds_note(job: JobSnapshot) -> str:
    notes = [job.bounds_reason] if job.bounds_reason is not None else []
    if job.unfit:
        notes.append(f"can't be held by {'; '.join(map(str, job.unfit))}")
    return "".join(f"; {note}" for note in notes)


def _restart_note(job: JobSnapshot) -> str:
    """Return the pause of a restartable job, which its cost of changing includes."""
    if not job.switching.restarts:
        return ""
    return f"; restarts all instances, {duration(job.switching.pause_seconds)} without progress"


def _checkpoint_note(change: GoodputChange) -> str:
    if not change.is_by_checkpoint:
        return ""
    paid = f", {money(change.carried_usd)} to transfer it" if change.carried_usd > 0 else ""
    return f"; through a checkpoint{paid}"


def _size(option: Option, beside: Offer | None = None) -> str:
    offer, used = option.offer, option.devices_used
    size = f"{option.instances} x {place(offer, beside)}"
    return size if used == offer.devices else f"{size}, {used} of {offer.devices} devices each"


def _describe_move(job: str, held: Option, given: Option) -> str:
    if held.offer.id != given.offer.id:
        return f"move {job} from {_size(held, given.offer)} to {_size(given, held.offer)}"
    before = held.instances * held.devices_used
    action = Action.GROW if given.instances * given.devices_used > before else Action.SHRINK
    if held.devices_used == given.devices_used:
        return f"{action.value} {job} {held.instances} -> {_size(given)}"
    return f"{action.value} {job} from {_size(held)} to {_size(given)}"


def _describe_gain(change: GoodputChange) -> str:
    rate, usd = signed(change.rate), signed_per_hour(change.usd_per_second)
    average = f"average now {number(change.average)} (value of time counted)"
    if change.usd_per_second == 0:
        return f"{rate} ex/s at the same price"
    if abs(change.rate) < _UNCHANGED_SHARE * change.rate_before:
        return f"{usd} at the same goodput"
    if (change.rate > 0) != (change.usd_per_second > 0):
        return f"{rate} ex/s and {usd}"
    per_usd = f"{number(change.marginal)} ex/s per $/h"
    if change.usd_per_second > 0:
        return f"{rate} ex/s for {usd} = {per_usd}, {average}"
    return f"saves {per_hour(-change.usd_per_second)} for {rate} ex/s = {per_usd}, {average}"


def _describe_payback(facts: Facts, held: Option, given: Option, change: GoodputChange) -> str:
    if facts.why is not ChoiceReason.LEAST_COST or not facts.has_its_wish:
        return ""
    if not given.measured and given.mean_usd >= held.mean_usd:
        share = percent(given.better)
        return f"; not measured there, but pays in {share} of cases and can be undone"
    if change.boot_seconds > 0 and change.payback_seconds is not None:
        payback_text = duration(change.payback_seconds)
        idle_text = "" if change.trains_during_boot else ", during which nothing trains,"
        boot_text = f"{duration(change.boot_seconds)} boot{idle_text}"
        return f"; pays back its {boot_text} in {payback_text}"
    return ""


def _describe_start(facts: Facts, given: Option) -> str:
    waiting = f"waiting costs {per_hour(facts.requirement.value_of_time)}"
    price, cheapest = given.usd_per_second, facts.cheapest
    if cheapest is None:
        return f"{number(given.rate)} ex/s for {per_hour(price)}, {_describe_choice(facts)}"
    if price <= cheapest.usd_per_second:
        return f"cheapest that can run it; {waiting}"
    dearer = signed_per_hour(price - cheapest.usd_per_second)
    times = number(given.rate / cheapest.rate)
    if times == number(1.0):
        return f"{dearer} over the cheapest, at the same speed; {waiting}"
    return f"{dearer} over the cheapest, but {waiting} and it may be {times} times as fast"


def _describe_choice(facts: Facts) -> str:
    if facts.why is ChoiceReason.STAGES:
        is_in_time = facts.job.objective.deadline_seconds is not None
        return "the cheapest in time" if is_in_time else "the fastest within the budget"
    return f"the least cost to the end; waiting costs {per_hour(facts.requirement.value_of_time)}"


def _describe_stay(facts: Facts, held: Option, around: LimitUsage) -> str:
    trained, stages = facts.job.trained, facts.requirement.stages
    if facts.why is ChoiceReason.UNDER_WAY:
        training = trained.instances if trained and trained.offer == held.offer.id else 0
        if training > held.instances:
            return f"{training - held.instances} leaving"
        return f"{training} of {held.instances} train so far"
    if facts.why is ChoiceReason.UNMEASURED:
        return "not measured there yet"
    if facts.has_its_wish and stages is not None and facts.later is not None:
        if stages.then == stages.first:
            return _describe_choice(facts)
        return f"{_size(facts.later)} in {duration(stages.order_seconds)}"
    return _describe_alternative(facts, held, around)


def _describe_alternative(facts: Facts, held: Option, around: LimitUsage) -> str:
    """Describe the best alternative to the held allocation and why it does not pay."""
    other = facts.other
    if not facts.has_faster:
        full = _limit_of_one_more(facts.job, held, around)
        if full is not None:
            return f"no room: {_describe_use(full, around)}"
    if other is None or other.change is None:
        return "nothing else is allowed"
    name = _short_size(held, other)
    why_not = _describe_why_not(facts, held, other, other.change)
    return f"{name} would {_describe_effect(other.change)}{why_not}"


def _short_size(held: Option, other: Option) -> str:
    if (held.offer.id, held.devices_used) == (other.offer.id, other.devices_used):
        return f"{other.instances} x"
    return _size(other, held.offer)


def _describe_effect(change: GoodputChange) -> str:
    rate, usd = signed(change.rate), signed_per_hour(change.usd_per_second)
    per_usd = f"{number(change.marginal)} ex/s per $/h, average now {number(change.average)}"
    if change.usd_per_second == 0 or (change.rate > 0) != (change.usd_per_second > 0):
        return f"add {rate} ex/s and {usd}"
    if change.rate > 0:
        return f"add {rate} ex/s for {usd} = {per_usd}"
    return f"save {per_hour(-change.usd_per_second)} for {rate} ex/s = {per_usd}"


def _describe_why_not(facts: Facts, held: Option, best: Option, change: GoodputChange) -> str:
    """Describe why the alternative does not pay; empty if the marginal figures show it."""
    if change.payback_seconds is None or not facts.has_its_wish:
        return ""
    if best.mean_usd >= held.mean_usd:
        time_left = duration(facts.work / held.rate)
        return f", but does not pay back what changing costs within {time_left}"
    return f", but is better in only {percent(best.better)} of cases"


def _limit_of_one_more(job: JobSnapshot, held: Option, around: LimitUsage) -> int | None:
    """Return the index of the limit that forbids one more held instance; None if none.

    None also if the job's bounds forbid it.
    """
    if held.instances >= job.instances.most_of(held.offer):
        return None
    supply = around.supply
    uses = supply.unit_uses[:, supply.terms.index[held.offer.id]]
    (full,) = np.nonzero(~fits(around.used + uses, supply.maximum) & (uses > 0))
    return int(full[0]) if len(full) else None


def _describe_use(limit: int, around: LimitUsage) -> str:
    bound = around.supply.limits[limit]
    used, maximum = number(float(around.used[limit])), number(bound.maximum)
    if bound.unit is LimitUnit.USD_PER_HOUR:
        return f"{bound.name} ${used} of ${maximum}/h in use"
    return f"{bound.name} {used} of {maximum} in use"


def _describe_why_nothing(facts: Facts, around: LimitUsage) -> str:
    job, supply = facts.job, around.supply
    if facts.why is not ChoiceReason.NOTHING_ALLOWED:
        return "no room"
    permitted = [supply.offers[index] for index in supply.permitted(job.instances)]
    if not permitted:
        unfit_text = "; ".join(map(str, job.unfit))
        if job.instances.has_ceiling:
            return f"no offer costs at most {job.instances.ceiling_text} now"
        return f"no offer can hold it: {unfit_text}" if job.unfit else _NO_OFFER_TEXT
    kinds = {offer.device_kind for offer in permitted}
    if not kinds & set(job.models):
        return f"no throughput model of {', '.join(sorted(kinds))}"
    open_offers = [offer for offer in permitted if offer.id not in supply.unavailable]
    if not open_offers:
        return f"{', '.join(offer.id for offer in permitted)} refused for now"
    if job.objective.budget_usd is not None:
        return "its remaining budget pays for no allocation that is available now"
    return "no room: the limits leave no instance that its bounds allow"


def _describe_unknown(job: JobSnapshot, supply: Supply) -> str:
    if job.held is not None and supply.offer(job.held.offer) is None:
        return "its offer no longer exists, so it can't be compared"
    return "its device has no throughput model, so it can't be compared"


def _describe_no_room(facts: Facts, contest: Contest, around: LimitUsage) -> str:
    use = _describe_use(around.supply.limits.index(contest.limit), around)
    wished = "more" if facts.wished is None else _size(facts.wished)
    return f"no room for {wished}: {use}"


def _describe_bid(usd_per_second: float, weight: float) -> str:
    bid = per_hour(usd_per_second)
    return bid if abs(weight - 1.0) < _UNCHANGED_SHARE else f"{bid} at weight {number(weight)}"


def _describe_contest(contest: Contest, around: LimitUsage) -> str:
    noun = _NOUNS[contest.limit.unit]
    own_bid = _describe_bid(contest.own_usd_per_second, contest.own_weight)
    rival_bid = _describe_bid(contest.rival_usd_per_second, contest.rival_weight)
    if contest.rival_minimum is not None:
        return (
            f"{contest.limit.name}: {contest.rival} needs {noun} for its minimum of "
            f"{contest.rival_minimum} instances, and bids {rival_bid}, this job {own_bid}"
        )
    if contest.took_it:
        return (
            f"{contest.limit.name}: {noun} is worth {rival_bid} to {contest.rival}, "
            f"{own_bid} to this job"
        )
    use = _describe_use(around.supply.limits.index(contest.limit), around)
    beside = "" if contest.rival is None else f", each that {contest.rival} holds {rival_bid}"
    return f"no room: {use}; {noun} is worth {own_bid} to this job{beside}"
