"""State transitions of an instance, its cloud calls and its bill; no storage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from autoscaler.domain.errors import Conflict
from autoscaler.domain.facts import Fact
from autoscaler.domain.gang import GangSeat
from autoscaler.domain.instance import (
    AskedOffer,
    CloudInstance,
    CloudState,
    Desired,
    HeldInstance,
    InstancePhase,
    asked_text,
)
from autoscaler.domain.intent import Intent, IntentKind, IntentState
from autoscaler.domain.job import JobPhase
from autoscaler.domain.offer import Offer
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.domain.transfer import TransferAccount
from autoscaler.store.records.places import Place, next_place
from autoscaler.store.records.transfers import line_seconds, settled

# Id of an intent before the store assigns a number.
UNNUMBERED = 0
# Error of a launch that was cancelled before the cloud was called.
NOT_WANTED = "not wanted any more before it was launched"

_WORKING_PHASES = (
    InstancePhase.PREPARING,
    InstancePhase.READY,
    InstancePhase.STARTING,
    InstancePhase.TRAINING,
    InstancePhase.WAITING,
)
# Phases of a job in which instances are ordered and launched for the job.
TAKES_INSTANCES = (JobPhase.PENDING, JobPhase.RUNNING)
_NODE_PHASES = frozenset((*_WORKING_PHASES, InstancePhase.DRAINING, InstancePhase.DRAINED))


@dataclass(frozen=True, slots=True)
class InstanceOrder:
    """Request for one more instance of an offer for a job.

    `token_of` returns the launch token of an instance id. The job gets the instance only if it
    holds fewer than `most` wanted instances of the offer; None is no limit. The cloud may launch
    one of `alternatives` instead, offers of the same `Offer.order_group`. `seat` is the seat of a
    member of a gang.
    """

    job: str
    offer: Offer
    devices_used: int
    token_of: Callable[[str], str]
    now_seconds: float
    most: int | None = None
    alternatives: tuple[Offer, ...] = ()
    seat: GangSeat | None = None

    def is_needed(self, held: Iterable[HeldInstance]) -> bool:
        """Return whether the job, which holds the instances `held`, is below the limit `most`."""
        if self.most is None:
            return True
        of_offer = [instance for instance in held if instance.offer == self.offer.id]
        return sum(instance.desired is Desired.PRESENT for instance in of_offer) < self.most


@dataclass(frozen=True, slots=True)
class Holding:
    """Instance, its cloud calls and its bill, which change in one transaction.

    `last_line` is the latest line that opened or closed the bill, None before the first.
    `new_lines` are lines of the ledger that are not written yet.
    """

    held: HeldInstance
    minimum_billed_seconds: int
    launch: Intent
    termination: Intent | None = None
    last_line: LedgerEntry | None = None
    new_lines: tuple[LedgerEntry, ...] = ()


def ordered(order: InstanceOrder, phase: JobPhase, places: Iterable[Place]) -> Holding:
    """Return the new instance of an order, with its launch intent.

    `phase` is the phase of the job; `places` are all slots and generations used so far.

    Raises:
        Conflict: the job is stopping or has ended.
    """
    job, offer = order.job, order.offer
    if phase not in TAKES_INSTANCES:
        raise Conflict(f"job {job} is {phase}: it takes no more instances")
    slot, generation = next_place(list(places))
    dearest = max((offer, *order.alternatives), key=lambda offer: offer.usd_per_hour)
    held = HeldInstance(
        id=f"{job}-{slot}-{generation}",
        job=job,
        slot=slot,
        generation=generation,
        offer=offer.id,
        devices_used=order.devices_used,
        usd_per_hour=dearest.usd_per_hour,
        desired=Desired.PRESENT,
        phase=InstancePhase.REQUESTED,
        requested_seconds=order.now_seconds,
        extras_usd_per_hour=dearest.extras_usd_per_hour,
        facts=_facts_of(order),
        transfer=TransferAccount(offer.upload_usd_per_gb, offer.download_usd_per_gb),
    )
    launch = _new_intent(IntentKind.LAUNCH, held.id, order.token_of(held.id), order.now_seconds)
    return Holding(held, offer.minimum_billed_seconds, launch)


def _facts_of(order: InstanceOrder) -> dict[str, str]:
    """Return the facts of a new instance that stay as they were in its offers at the order."""
    offer = order.offer
    facts: dict[str, str] = {}
    if order.seat is not None:
        facts[Fact.GANG] = str(order.seat)
    if order.alternatives:
        facts[Fact.ASKED] = asked_text(
            AskedOffer(asked.id, asked.usd_per_hour, asked.extras_usd_per_hour)
            for asked in (offer, *order.alternatives)
        )
    if offer.network:
        facts[Fact.NETWORK] = offer.network
    if offer.join_seconds is not None:
        facts[Fact.JOIN] = f"{offer.join_seconds:g}"
    return facts


def has_left(held: HeldInstance) -> bool:
    """Return whether the job has released the instance and its work for the job has ended."""
    return held.desired is Desired.ABSENT and held.phase is InstancePhase.DRAINED


def unwanted(held: HeldInstance, now_seconds: float) -> HeldInstance:
    """Return the instance as no longer wanted; a working instance starts to drain."""
    if held.phase is InstancePhase.ENDED or held.desired is Desired.ABSENT:
        return held
    phase = InstancePhase.DRAINING if held.phase in _WORKING_PHASES else held.phase
    return replace(held, desired=Desired.ABSENT, draining_seconds=now_seconds, phase=phase)


def heard(
    held: HeldInstance, told: InstancePhase, now_seconds: float, facts: Mapping[str, str]
) -> HeldInstance:
    """Return the instance after its node reported the phase `told`.

    `facts` are added to the known facts. An ended instance does not change.

    Raises:
        Conflict: nodes do not report the phase `told`.
    """
    if told not in _NODE_PHASES:
        raise Conflict(f"instance {held.id}: a node can't report the phase {told}")
    if held.phase is InstancePhase.ENDED:
        return held
    joined_seconds, training_seconds = held.joined_seconds, held.training_seconds
    phase = told if _may_follow(told, held.phase) else held.phase
    if phase is InstancePhase.TRAINING and training_seconds is None:
        training_seconds = now_seconds
    return replace(
        held,
        phase=phase,
        joined_seconds=now_seconds if joined_seconds is None else joined_seconds,
        training_seconds=training_seconds,
        seen_seconds=max(now_seconds, held.seen_seconds or now_seconds),
        facts={**held.facts, **facts} if facts else held.facts,
    )


def to_be_taken_back(held: HeldInstance, reclaim_seconds: float) -> HeldInstance:
    """Return the instance with a reclaim at `reclaim_seconds`; the earliest notice counts."""
    known_seconds = held.reclaim_seconds
    if known_seconds is not None and known_seconds <= reclaim_seconds:
        return held
    return replace(held, reclaim_seconds=reclaim_seconds)


def to_be_terminated(holding: Holding, now_seconds: float, facts: Mapping[str, str]) -> Holding:
    """Return the holding as unwanted, with one intent to terminate its instance.

    An instance whose launch no cloud can have carried out ends at once and is not billed.
    `facts` state the reason.
    """
    held = unwanted(holding.held, now_seconds)
    if held.phase is InstancePhase.ENDED:
        return holding
    unwanted_holding = replace(holding, held=replace(held, facts={**held.facts, **facts}))
    if is_unsent(holding.launch):
        return refused(unwanted_holding, NOT_WANTED, now_seconds)
    return _with_termination(unwanted_holding, now_seconds)


def is_unsent(launch: Intent) -> bool:
    """Return whether a launch is pending and no call so far can have created an instance."""
    return launch.state is IntentState.PENDING and launch.sent_seconds is None


def may_be_sent(holding: Holding, phase: JobPhase) -> bool:
    """Return whether the launch is pending and a job in `phase` still wants the instance."""
    is_pending = holding.launch.state is IntentState.PENDING
    is_wanted = holding.held.desired is Desired.PRESENT and phase in TAKES_INSTANCES
    return is_pending and is_wanted


def sent(holding: Holding, phase: JobPhase, now_seconds: float) -> Holding:
    """Return the holding with its launch marked as sent, if the launch is still wanted.

    An unwanted launch that was never sent ends its instance, unbilled. An unwanted launch whose
    outcome is not known stays as it is.
    """
    if may_be_sent(holding, phase):
        return replace(holding, launch=replace(holding.launch, sent_seconds=now_seconds))
    if is_unsent(holding.launch):
        return refused(holding, NOT_WANTED, now_seconds)
    return holding


def seen_in_cloud(holding: Holding, seen: CloudInstance, now_seconds: float) -> Holding:
    """Return the holding after its cloud reported the instance as `seen`.

    The first report with a launch time opens the bill; a report as terminated closes it. An
    instance that ends in a queue for capacity has no bill.

    Raises:
        Conflict: the cloud reports a second instance under this id.
    """
    held = holding.held
    if held.cloud_id not in (None, seen.id):
        raise Conflict(
            f"instance {held.id} is {held.cloud_id} in the cloud, "
            f"and {seen.id} too: terminate {seen.id}"
        )
    if held.cloud_id is None:
        holding = _first_seen(holding, seen)
    if seen.refusal is not None:
        return _never_ran(holding, now_seconds)
    if held.launched_seconds is None and seen.launched_seconds is not None:
        holding = _launched(holding, seen.launched_seconds)
    if held.phase is InstancePhase.ENDED and held.launched_seconds is None:
        holding = _with_termination(holding, now_seconds)
    if seen.state is not CloudState.TERMINATED:
        return holding
    holding = with_transfer(holding, now_seconds)
    return _ended(holding, now_seconds if seen.ended_seconds is None else seen.ended_seconds)


def repriced(holding: Holding, offer: Offer, now_seconds: float) -> Holding:
    """Return the holding billed at the current price of `offer`.

    The bill is closed at the old price and opened at the new price. Nothing changes if the price
    is the same or no bill is open.
    """
    held, last = holding.held, holding.last_line
    usd_per_hour, extras = offer.usd_per_hour, offer.extras_usd_per_hour
    is_same = (held.usd_per_hour, held.extras_usd_per_hour) == (usd_per_hour, extras)
    if last is None or last.kind is EntryKind.CLOSE or is_same:
        return holding
    at_seconds = line_seconds(now_seconds, last.at_seconds)
    closed = replace(last, kind=EntryKind.CLOSE, at_seconds=at_seconds)
    opened = replace(  # at the next float: too short to be billed
        last,
        at_seconds=math.nextafter(at_seconds, math.inf),
        usd_per_hour=usd_per_hour,
        extras_usd_per_hour=extras,
    )
    lined = with_line(with_line(holding, closed), opened)
    priced = replace(held, usd_per_hour=usd_per_hour, extras_usd_per_hour=extras)
    return replace(lined, held=priced)


def billed_again(holding: Holding, now_seconds: float) -> Holding:
    """Return the holding with its closed bill opened again from its end, and a new termination."""
    last = holding.last_line
    if last is None or last.kind is not EntryKind.CLOSE:
        return holding
    # The next float: too short to be billed. Two lines of one kind need different times.
    opened = replace(
        last, kind=EntryKind.OPEN, at_seconds=math.nextafter(last.at_seconds, math.inf)
    )
    return _with_termination(with_line(holding, opened), now_seconds, again=True)


def refused(holding: Holding, error: str, now_seconds: float) -> Holding:
    """Return the holding ended without a launch, with `error` as the reason.

    Raises:
        Conflict: the cloud has reported the instance.
    """
    held = holding.held
    if held.cloud_id is not None:
        raise Conflict(f"instance {held.id} was launched: it is {held.cloud_id}")
    if held.phase is InstancePhase.ENDED:
        return holding
    holding = with_transfer(holding, now_seconds)  # the agent may have reported transfers anyway
    return replace(
        holding,
        held=replace(holding.held, phase=InstancePhase.ENDED, ended_seconds=now_seconds),
        launch=_resolved(holding.launch, IntentState.FAILED, error),
        termination=holding.termination
        and _resolved(holding.termination, IntentState.FAILED, error),
    )


def _may_follow(phase: InstancePhase, known: InstancePhase) -> bool:
    if known is InstancePhase.DRAINED:
        return False
    return known is not InstancePhase.DRAINING or phase is InstancePhase.DRAINED


def _first_seen(holding: Holding, seen: CloudInstance) -> Holding:
    """Return the holding with its instance known to the cloud, at least in a queue.

    Of several offers that the order named, the instance gets the one that the cloud launched.
    """
    held = holding.held
    for asked in held.asked or ():
        if asked.id == seen.offer:
            held = replace(
                held,
                offer=asked.id,
                usd_per_hour=asked.usd_per_hour,
                extras_usd_per_hour=asked.extras_usd_per_hour,
            )
    phase = InstancePhase.QUEUED if held.phase is InstancePhase.REQUESTED else held.phase
    return replace(
        holding,
        held=replace(held, phase=phase, cloud_id=seen.id),
        launch=_resolved(holding.launch, IntentState.DONE),
    )


def _launched(holding: Holding, launched_seconds: float) -> Holding:
    held = holding.held
    phase = InstancePhase.BOOTING if held.phase is InstancePhase.QUEUED else held.phase
    opened = LedgerEntry(
        kind=EntryKind.OPEN,
        instance=held.id,
        job=held.job,
        offer=held.offer,
        usd_per_hour=held.usd_per_hour,
        at_seconds=launched_seconds,
        minimum_billed_seconds=holding.minimum_billed_seconds,
        extras_usd_per_hour=held.extras_usd_per_hour,
    )
    launched = replace(held, phase=phase, launched_seconds=launched_seconds)
    return replace(with_line(holding, opened), held=launched)


def _ended(holding: Holding, ended_seconds: float) -> Holding:
    held, last, termination = holding.held, holding.last_line, holding.termination
    if last is not None:
        if last.kind is EntryKind.CLOSE:
            return holding
        ended_seconds = max(ended_seconds, last.at_seconds)
        holding = with_line(holding, replace(last, kind=EntryKind.CLOSE, at_seconds=ended_seconds))
    elif held.phase is InstancePhase.ENDED and held.ended_seconds is not None:
        ended_seconds = held.ended_seconds
    return replace(
        holding,
        held=replace(held, phase=InstancePhase.ENDED, ended_seconds=ended_seconds),
        termination=termination and _resolved(termination, IntentState.DONE),
    )


def _never_ran(holding: Holding, now_seconds: float) -> Holding:
    """Return the holding ended without a bill: the cloud accepted the launch, then refused it."""
    held, last, termination = holding.held, holding.last_line, holding.termination
    if last is not None and last.kind is not EntryKind.CLOSE:
        closed = replace(last, kind=EntryKind.CLOSE, minimum_billed_seconds=0)
        holding = with_line(holding, closed)
    ended_seconds = now_seconds if held.ended_seconds is None else held.ended_seconds
    return replace(
        holding,
        held=replace(
            holding.held,
            phase=InstancePhase.ENDED,
            launched_seconds=None,
            ended_seconds=ended_seconds,
        ),
        termination=termination and _resolved(termination, IntentState.DONE),
    )


def with_line(holding: Holding, line: LedgerEntry) -> Holding:
    """Return the holding with one more line of the ledger to write."""
    return replace(holding, last_line=line, new_lines=(*holding.new_lines, line))


def with_transfer(holding: Holding, now_seconds: float) -> Holding:
    """Return the holding with a ledger line for unbilled transfers, if there are any."""
    lined = settled(holding.held, now_seconds)
    return replace(holding, held=lined.held, new_lines=(*holding.new_lines, *lined.new_lines))


def _with_termination(holding: Holding, now_seconds: float, again: bool = False) -> Holding:
    """Return the holding with a pending intent to terminate its instance.

    A failed intent becomes pending again. A pending or completed intent does so only if `again`.
    """
    known_termination, launch = holding.termination, holding.launch
    if known_termination is None:
        termination = _new_intent(IntentKind.TERMINATE, launch.instance, launch.token, now_seconds)
    elif again or known_termination.state is IntentState.FAILED:
        termination = replace(
            known_termination, state=IntentState.PENDING, not_before_seconds=now_seconds
        )
    else:
        return holding
    return replace(holding, termination=termination)


def _new_intent(kind: IntentKind, instance: str, token: str, now_seconds: float) -> Intent:
    return Intent(
        id=UNNUMBERED,
        kind=kind,
        instance=instance,
        token=token,
        state=IntentState.PENDING,
        attempts=0,
        not_before_seconds=now_seconds,
    )


def _resolved(intent: Intent, state: IntentState, error: str | None = None) -> Intent:
    if intent.state is not IntentState.PENDING:
        return intent
    return replace(intent, state=state, error=error)
