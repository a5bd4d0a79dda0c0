"""What becomes of an instance, with the calls that are made for it and its bill; no storage."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from autoscaler.domain.errors import Conflict
from autoscaler.domain.instance import (
    NETWORK_FACT,
    CloudInstance,
    CloudState,
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.intent import Intent, IntentKind, IntentState
from autoscaler.domain.job import JobPhase
from autoscaler.domain.offer import Offer
from autoscaler.domain.spending import EntryKind, LedgerEntry
from autoscaler.domain.transfer import TransferAccount
from autoscaler.store.places import Place, next_place
from autoscaler.store.transfers import line_seconds, settled

# The id of an intent that the store has not numbered yet.
UNNUMBERED = 0
# The error of a launch that was dropped before a cloud was called.
NOT_WANTED = "not wanted any more before it was launched"

_AT_WORK = (
    InstancePhase.PREPARING,
    InstancePhase.READY,
    InstancePhase.STARTING,
    InstancePhase.TRAINING,
    InstancePhase.WAITING,
)
# The phases of a job for which instances are ordered and launched.
TAKES_INSTANCES = (JobPhase.PENDING, JobPhase.RUNNING)
_TOLD_BY_NODES = frozenset((*_AT_WORK, InstancePhase.DRAINING, InstancePhase.DRAINED))


@dataclass(frozen=True, slots=True)
class Order:
    """One more instance of an offer for a job.

    `token_of` makes the launch token of an instance's id. The order is made only if the job holds
    fewer than `most` instances of the offer that are wanted; None is no such bound.
    """

    job: str
    offer: Offer
    devices_used: int
    token_of: Callable[[str], str]
    now_seconds: float
    most: int | None = None

    def is_needed(self, held: Iterable[HeldInstance]) -> bool:
        """Return whether to order, for a job that holds these instances."""
        if self.most is None:
            return True
        alike = [each for each in held if each.offer == self.offer.id]
        return sum(each.desired is Desired.PRESENT for each in alike) < self.most


@dataclass(frozen=True, slots=True)
class Holding:
    """What changes together or not at all: an instance, the calls for it, its bill.

    `last_line` is the one that opened or closed its bill last; `new_lines` are still to be
    written.
    """

    held: HeldInstance
    minimum_billed_seconds: int
    launch: Intent
    termination: Intent | None = None
    last_line: LedgerEntry | None = None
    new_lines: tuple[LedgerEntry, ...] = ()


def ordered(order: Order, phase: JobPhase, places: Iterable[Place]) -> Holding:
    """The instance that an order makes; `places` are all there ever were of its job.

    Raises:
        Conflict: the job, in that phase, is stopping or has ended.
    """
    job, offer = order.job, order.offer
    if phase not in TAKES_INSTANCES:
        raise Conflict(f"job {job} is {phase}: nothing is ordered for it any more")
    slot, generation = next_place(list(places))
    held = HeldInstance(
        id=f"{job}-{slot}-{generation}",
        job=job,
        slot=slot,
        generation=generation,
        offer=offer.id,
        devices_used=order.devices_used,
        usd_per_hour=offer.usd_per_hour,
        desired=Desired.PRESENT,
        phase=InstancePhase.REQUESTED,
        requested_seconds=order.now_seconds,
        extras_usd_per_hour=offer.extras_usd_per_hour,
        facts={NETWORK_FACT: offer.network} if offer.network else {},
        transfer=TransferAccount(offer.upload_usd_per_gb, offer.download_usd_per_gb),
    )
    launch = _intent(IntentKind.LAUNCH, held.id, order.token_of(held.id), order.now_seconds)
    return Holding(held, offer.minimum_billed_seconds, launch)


def has_left(held: HeldInstance) -> bool:
    """Whether its job has let it go and it has left that, as a trial does that waits."""
    return held.desired is Desired.ABSENT and held.phase is InstancePhase.DRAINED


def unwanted(held: HeldInstance, now_seconds: float) -> HeldInstance:
    """Wanted no more: it drains if it is at work."""
    if held.phase is InstancePhase.ENDED or held.desired is Desired.ABSENT:
        return held
    phase = InstancePhase.DRAINING if held.phase in _AT_WORK else held.phase
    return replace(held, desired=Desired.ABSENT, draining_seconds=now_seconds, phase=phase)


def heard(
    held: HeldInstance, told: InstancePhase, now_seconds: float, facts: Mapping[str, str]
) -> HeldInstance:
    """As its node tells that it is.

    Raises:
        Conflict: `told` is not for a node to tell.
    """
    if told not in _TOLD_BY_NODES:
        raise Conflict(f"instance {held.id}: a node can't tell that it is {told}")
    if held.phase is InstancePhase.ENDED:
        return held
    joined_seconds, training_seconds = held.joined_seconds, held.training_seconds
    phase = told if _follows(told, held.phase) else held.phase
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
    """With a notice of reclaim; of several the earliest counts."""
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
    """Return whether a launch is still to be made and no instance can have come of it."""
    return launch.state is IntentState.PENDING and launch.sent_seconds is None


def may_be_sent(holding: Holding, phase: JobPhase) -> bool:
    """Return whether the launch of a holding is still to be made, for a job in `phase`."""
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
    """As its cloud shows it: launched at the first sight, then as long as it is not terminated.

    One that waits in a queue for its capacity is not launched, and ends there without a bill.

    Raises:
        Conflict: it is another one in the cloud.
    """
    held = holding.held
    if held.cloud_id not in (None, seen.id):
        raise Conflict(
            f"instance {held.id} is {held.cloud_id} in the cloud, "
            f"and {seen.id} too: terminate {seen.id}"
        )
    if held.cloud_id is None:
        holding = _known(holding, seen)
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
    """At the price that its offer has now, if it is billed and that has changed."""
    held, last = holding.held, holding.last_line
    usd_per_hour, extras = offer.usd_per_hour, offer.extras_usd_per_hour
    is_same = (held.usd_per_hour, held.extras_usd_per_hour) == (usd_per_hour, extras)
    if last is None or last.kind is EntryKind.CLOSE or is_same:
        return holding
    at_seconds = line_seconds(now_seconds, last.at_seconds)
    closed = replace(last, kind=EntryKind.CLOSE, at_seconds=at_seconds)
    opened = replace(  # a moment later, likewise
        last,
        at_seconds=math.nextafter(at_seconds, math.inf),
        usd_per_hour=usd_per_hour,
        extras_usd_per_hour=extras,
    )
    lined = with_line(with_line(holding, closed), opened)
    priced = replace(held, usd_per_hour=usd_per_hour, extras_usd_per_hour=extras)
    return replace(lined, held=priced)


def billed_again(holding: Holding, now_seconds: float) -> Holding:
    """With its end taken back, if its bill is closed: billed on from there, terminated again."""
    last = holding.last_line
    if last is None or last.kind is not EntryKind.CLOSE:
        return holding
    # A moment later, less than is billed: no two lines of a kind have the same time.
    opened = replace(
        last, kind=EntryKind.OPEN, at_seconds=math.nextafter(last.at_seconds, math.inf)
    )
    return _with_termination(with_line(holding, opened), now_seconds, again=True)


def refused(holding: Holding, error: str, now_seconds: float) -> Holding:
    """Ended before it was launched: its cloud refused.

    Raises:
        Conflict: the cloud has shown it.
    """
    held = holding.held
    if held.cloud_id is not None:
        raise Conflict(f"instance {held.id} was launched: it is {held.cloud_id}")
    if held.phase is InstancePhase.ENDED:
        return holding
    holding = with_transfer(holding, now_seconds)  # its agent may have been heard all the same
    return replace(
        holding,
        held=replace(holding.held, phase=InstancePhase.ENDED, ended_seconds=now_seconds),
        launch=_settled(holding.launch, IntentState.FAILED, error),
        termination=holding.termination
        and _settled(holding.termination, IntentState.FAILED, error),
    )


def _follows(phase: InstancePhase, known: InstancePhase) -> bool:
    if known is InstancePhase.DRAINED:
        return False
    return known is not InstancePhase.DRAINING or phase is InstancePhase.DRAINED


def _known(holding: Holding, seen: CloudInstance) -> Holding:
    """It is in its cloud, if only in a queue there."""
    held = holding.held
    phase = InstancePhase.QUEUED if held.phase is InstancePhase.REQUESTED else held.phase
    return replace(
        holding,
        held=replace(held, phase=phase, cloud_id=seen.id),
        launch=_settled(holding.launch, IntentState.DONE),
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
        termination=termination and _settled(termination, IntentState.DONE),
    )


def _never_ran(holding: Holding, now_seconds: float) -> Holding:
    """Return the holding ended without a bill: its cloud refused the launch that it had taken."""
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
        termination=termination and _settled(termination, IntentState.DONE),
    )


def with_line(holding: Holding, line: LedgerEntry) -> Holding:
    """Return the holding with one more line of its bill to write."""
    return replace(holding, last_line=line, new_lines=(*holding.new_lines, line))


def with_transfer(holding: Holding, now_seconds: float) -> Holding:
    """With a line for what it owes for what it has sent and fetched, if it does."""
    lined = settled(holding.held, now_seconds)
    return replace(holding, held=lined.held, new_lines=(*holding.new_lines, *lined.new_lines))


def _with_termination(holding: Holding, now_seconds: float, again: bool = False) -> Holding:
    """With the intent to terminate it, unless that is pending or, not `again`, done."""
    known, launch = holding.termination, holding.launch
    if known is None:
        asked = _intent(IntentKind.TERMINATE, launch.instance, launch.token, now_seconds)
    elif again or known.state is IntentState.FAILED:
        asked = replace(known, state=IntentState.PENDING, not_before_seconds=now_seconds)
    else:
        return holding
    return replace(holding, termination=asked)


def _intent(kind: IntentKind, instance: str, token: str, now_seconds: float) -> Intent:
    return Intent(
        id=UNNUMBERED,
        kind=kind,
        instance=instance,
        token=token,
        state=IntentState.PENDING,
        attempts=0,
        not_before_seconds=now_seconds,
    )


def _settled(intent: Intent, state: IntentState, error: str | None = None) -> Intent:
    if intent.state is not IntentState.PENDING:
        return intent
    return replace(intent, state=state, error=error)
