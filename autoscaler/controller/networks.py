"""Which of a job's instances may train: those of one network, for they can't reach the others.

A job that moves to another network is handed on by its checkpoint. The new instances come as far
as the door: all is laid out, and their scripts are started once the old ones have left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autoscaler.domain.instance import HeldInstance, InstancePhase

_IS_OUT: Final = (InstancePhase.DRAINED, InstancePhase.ENDED)


def waits_outside(held: HeldInstance, own: Iterable[HeldInstance]) -> bool:
    """Whether an instance has to wait until those of another network have left its job.

    `own` are all of the job's. Of those that have not left, one that has trained for it says which
    network it is in, or else one whose script was started, or else any: that which came first.
    """
    joined = (each for each in own if each.joined_seconds is not None)
    first = min((each for each in joined if each.phase not in _IS_OUT), key=_turn, default=held)
    return first.network != held.network


def _turn(held: HeldInstance) -> tuple[bool, bool, float, str]:
    """Who was handed over had joined long before, for another job."""
    came_seconds = max(held.joined_seconds or 0.0, held.requested_seconds)
    never_trained = held.training_seconds is None
    return never_trained, held.phase is not InstancePhase.STARTING, came_seconds, held.id


def is_at_the_door(held: HeldInstance, own: Iterable[HeldInstance]) -> bool:
    """Whether it would train as soon as it may, and may not yet."""
    return held.phase is InstancePhase.READY and waits_outside(held, own)
