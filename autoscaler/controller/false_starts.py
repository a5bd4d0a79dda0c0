"""Instances that ended before they trained: an offer is not ordered without end in vain.

Counted from what the store keeps of instances, so that a restart forgets nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.store.store import Store

GIVEN_UP_FACT = "given up"

_TOLERATED = 3
_TOLERATED_EVERYWHERE = 6
_FIRST_WAIT_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 600.0
# A script that knows nothing of Castor never trains; one that ran this long was not in vain.
_LONG_SECONDS = 900.0


def false_starts(store: Store, job: str, now_seconds: float) -> Mapping[str, str]:
    """The offers that a job is not to order now, each with why: its starts came to nothing.

    From the third on the wait doubles with each. Instances that were there at the same time
    count as one start. One that trains resets the count of its offer.
    """
    by_offer: dict[str, list[HeldInstance]] = {}
    for held in store.instances.never_trained(job):
        if _is_in_vain(held):
            by_offer.setdefault(held.offer, []).append(held)
    found: dict[str, str] = {}
    for offer, ended in by_offer.items():
        in_a_row = _in_a_row(ended)
        if in_a_row < _TOLERATED:
            continue
        last = max(ended, key=_over_seconds)
        wait_seconds = _wait_seconds(in_a_row - _TOLERATED)
        if now_seconds < _over_seconds(last) + wait_seconds:
            found[offer] = (
                f"{offer}: {in_a_row} starts in a row ended before they trained; not ordered "
                f"for {wait_seconds:.0f} s; the last, {last.id}: {_cause(store, last)}"
            )
    return found


def in_vain_everywhere(store: Store, job: str, now_seconds: float) -> str | None:
    """Why a job is to order nothing now, wherever: its starts came to nothing on all offers alike.

    An image that does not boot is no offer's fault, and there may be many offers of it. From the
    sixth start in a row on the wait doubles with each. One that trains, on any offer, resets it.
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
            and (held.phase is InstancePhase.ENDED or GIVEN_UP_FACT in held.facts)
            and _is_in_vain(held)
        ),
        key=lambda held: held.requested_seconds,
    )
    in_a_row = _in_a_row(ended)
    if in_a_row < _TOLERATED_EVERYWHERE:
        return None
    last = max(ended, key=_over_seconds)
    wait_seconds = _wait_seconds(in_a_row - _TOLERATED_EVERYWHERE)
    if now_seconds >= _over_seconds(last) + wait_seconds:
        return None
    return (
        f"{in_a_row} starts in a row, on all offers, ended before they trained; nothing is "
        f"ordered for {wait_seconds:.0f} s; the last, {last.id} on {last.offer}: "
        f"{_cause(store, last)}"
    )


def _wait_seconds(doublings: int) -> float:
    return min(_FIRST_WAIT_SECONDS * 2.0 ** min(doublings, 10), _LONGEST_WAIT_SECONDS)


def _is_in_vain(held: HeldInstance) -> bool:
    """It ended by itself or was given up, soon; not: let go of, or done."""
    if held.desired is Desired.ABSENT and GIVEN_UP_FACT not in held.facts:
        return False
    return _over_seconds(held) - (held.launched_seconds or 0.0) < _LONG_SECONDS


def _in_a_row(ended: Sequence[HeldInstance]) -> int:
    count, first_over_seconds = 0, float("-inf")
    for held in ended:
        if held.requested_seconds >= first_over_seconds:
            count += 1
            first_over_seconds = _over_seconds(held)
        first_over_seconds = min(first_over_seconds, _over_seconds(held))
    return count


def _over_seconds(held: HeldInstance) -> float:
    """When it ended; one that was given up is replaced at once, so it counts from then."""
    seconds = held.draining_seconds if GIVEN_UP_FACT in held.facts else held.ended_seconds
    assert seconds is not None, "what was given up is released, and the others have ended"
    return seconds


def _cause(store: Store, held: HeldInstance) -> str:
    """What is known of why it ended."""
    failures = [each for each in store.reports.failures(held.job) if each.instance == held.id]
    if failures:
        return failures[-1].cause
    if GIVEN_UP_FACT in held.facts:
        return held.facts[GIVEN_UP_FACT]
    joined = "after" if held.joined_seconds is not None else "before"
    return f"it ended {joined} its agent had joined"
