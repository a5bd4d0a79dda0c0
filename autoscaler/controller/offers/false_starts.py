"""False starts: instances that ended before they trained, and the back-off from their offers.

Counts come from the store, so that they survive a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from autoscaler.clock import is_waiting
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.store.repositories.events import Event
from autoscaler.store.store import Store

_log = logging.getLogger(__name__)

_TOLERATED_STARTS = 3
_TOLERATED_STARTS_EVERYWHERE = 6
_FIRST_WAIT_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 600.0
# Starts that are billed for long are repeated less often: waits are at least as long as the last
# start and at most this many times as long.
_LONGEST_WAIT_IN_STARTS = 10.0
# A script without Castor never trains; a run of this length is no false start.
_USEFUL_RUN_SECONDS = 900.0


def false_starts(store: Store, job: str, now_seconds: float) -> Mapping[str, str]:
    """Return the offers that a job must not order now because of false starts, each with a reason.

    From the third consecutive false start on, the wait doubles each time. Instances that existed
    at the same time count as one start. An instance that trains resets the count of its offer.
    """
    by_offer: dict[str, list[HeldInstance]] = {}
    for held in store.instances.never_trained(job):
        if _is_false_start(held):
            by_offer.setdefault(held.offer, []).append(held)
    reasons: dict[str, str] = {}
    for offer, ended in by_offer.items():
        consecutive = _consecutive_starts(ended)
        if consecutive < _TOLERATED_STARTS:
            continue
        last = max(ended, key=_end_seconds)
        wait_seconds = _wait_seconds(consecutive - _TOLERATED_STARTS, last)
        if is_waiting(_end_seconds(last) + wait_seconds, now_seconds, wait_seconds):
            reasons[offer] = (
                f"{offer}: {consecutive} starts in a row ended before they trained; not ordered "
                f"for {wait_seconds:.0f} s; the last, {last.id}: {_cause(store, last)}"
            )
    return reasons


def false_starts_everywhere(store: Store, job: str, now_seconds: float) -> str | None:
    """Return why a job must order nothing now, because starts on all offers fail; None if it may.

    An image that does not boot fails on every offer. From the sixth consecutive false start on,
    the wait doubles each time. An instance that trains, on any offer, resets the count.
    """
    instances = store.instances.of_job(job, include_ended=True)
    trained = [held for held in instances if held.training_seconds is not None]
    if any(held.phase is InstancePhase.TRAINING for held in trained):
        return None
    since_seconds = max((held.training_seconds or 0.0 for held in trained), default=0.0)
    ended = sorted(
        (
            held
            for held in instances
            if held.training_seconds is None
            and held.launched_seconds is not None
            and held.requested_seconds >= since_seconds
            and (held.phase is InstancePhase.ENDED or held.given_up_cause is not None)
            and _is_false_start(held)
        ),
        key=lambda held: held.requested_seconds,
    )
    consecutive = _consecutive_starts(ended)
    if consecutive < _TOLERATED_STARTS_EVERYWHERE:
        return None
    last = max(ended, key=_end_seconds)
    wait_seconds = _wait_seconds(consecutive - _TOLERATED_STARTS_EVERYWHERE, last)
    if not is_waiting(_end_seconds(last) + wait_seconds, now_seconds, wait_seconds):
        return None
    return (
        f"{consecutive} starts in a row, on all offers, ended before they trained; nothing is "
        f"ordered for {wait_seconds:.0f} s; the last, {last.id} on {last.offer}: "
        f"{_cause(store, last)}"
    )


def give_up(store: Store, held: HeldInstance, cause: str, now_seconds: float) -> None:
    """Terminate an instance that does not start as it should; it counts as a false start."""
    text = f"{held.id}: {cause}"
    fields = {"job": held.job, "instance": held.id}
    _log.info("instance given up: %s", text, extra=fields)
    store.events.add(Event(now_seconds, "instance given up", text, held.job))
    facts: dict[str, str] = {Fact.GIVEN_UP: cause}
    store.instances.request_termination(held.id, now_seconds, facts)


def _wait_seconds(doublings: int, last: HeldInstance) -> float:
    start_seconds = _lived_seconds(last) if last.joined_seconds is None else 0.0
    first_seconds = max(_FIRST_WAIT_SECONDS, start_seconds)
    longest_seconds = max(_LONGEST_WAIT_SECONDS, _LONGEST_WAIT_IN_STARTS * start_seconds)
    return min(first_seconds * 2.0 ** min(doublings, 10), longest_seconds)


def _is_false_start(held: HeldInstance) -> bool:
    """Return whether an instance ended by itself or was given up soon after its launch.

    An instance whose agent never joined has done nothing, however long it existed.
    """
    if held.desired is Desired.ABSENT and held.given_up_cause is None:
        return False
    return held.joined_seconds is None or _lived_seconds(held) < _USEFUL_RUN_SECONDS


def _lived_seconds(held: HeldInstance) -> float:
    return _end_seconds(held) - (held.launched_seconds or 0.0)


def _consecutive_starts(ended: Sequence[HeldInstance]) -> int:
    count, first_end_seconds = 0, float("-inf")
    for held in ended:
        if held.requested_seconds >= first_end_seconds:
            count += 1
            first_end_seconds = _end_seconds(held)
        first_end_seconds = min(first_end_seconds, _end_seconds(held))
    return count


def _end_seconds(held: HeldInstance) -> float:
    """Return when an instance ended, or was given up and replaced, in epoch seconds."""
    is_given_up = held.given_up_cause is not None
    seconds = held.draining_seconds if is_given_up else held.ended_seconds
    assert seconds is not None, "given-up instances are released, and the others have ended"
    return seconds


def _cause(store: Store, held: HeldInstance) -> str:
    """Return why an instance ended: its last failure, or why it was given up.

    Without either, the text says whether its agent had joined.
    """
    failures = [
        failure for failure in store.reports.failures(held.job) if failure.instance == held.id
    ]
    if failures:
        return failures[-1].cause
    if held.given_up_cause is not None:
        return held.given_up_cause
    joined = "after" if held.joined_seconds is not None else "before"
    return f"it ended {joined} its agent had joined"
