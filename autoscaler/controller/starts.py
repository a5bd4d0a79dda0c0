"""How long instances take to their first step: learnt from each that begins to train."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autoscaler.controller.networks import is_at_the_door, waits_outside
from autoscaler.domain.instance import (
    HANDED_OVER_FACT,
    LET_IN_FACT,
    READY_FACT,
    START_FACT,
    HeldInstance,
    by_job,
)
from autoscaler.store.measurements import HAND_OVER_DURATION, START_DURATION
from autoscaler.store.store import Store


def measure_starts(
    store: Store, alive: Iterable[HeldInstance], since_seconds: float, now_seconds: float
) -> None:
    """Write down what the starts took that are new since then, from launch or another job.

    For as long as one waits at the door its job works on elsewhere, and that is no start.
    """
    for own in by_job(alive).values():
        for held in own:
            noted = _note_waiting(store, held, own, now_seconds)
            if held.training_seconds is not None and held.training_seconds > since_seconds:
                _measure_start(store, noted, held.training_seconds)


def _note_waiting(
    store: Store, held: HeldInstance, own: Sequence[HeldInstance], now_seconds: float
) -> HeldInstance:
    """With when it came to the door, and when it was let in, if that is new."""
    has_come, is_in = READY_FACT in held.facts, LET_IN_FACT in held.facts
    if not has_come and is_at_the_door(held, own):
        return store.instances.note(held.id, {READY_FACT: str(now_seconds)})
    if has_come and not is_in and not waits_outside(held, own):
        return store.instances.note(held.id, {LET_IN_FACT: str(now_seconds)})
    return held


def _measure_start(store: Store, held: HeldInstance, training_seconds: float) -> None:
    if held.launched_seconds is None:
        return
    given = held.facts.get(HANDED_OVER_FACT)
    what = START_DURATION if given is None else HAND_OVER_DURATION
    begun_seconds = held.launched_seconds if given is None else float(given)
    waited_seconds = _waited_seconds(held, training_seconds)
    start_seconds = training_seconds - begun_seconds - waited_seconds
    store.measurements.add_duration(held.job, held.offer, what, start_seconds)
    if given is None and waited_seconds > 0:
        store.instances.note(held.id, {START_FACT: str(start_seconds)})


def _waited_seconds(held: HeldInstance, training_seconds: float) -> float:
    """For how long it stood at the door."""
    if READY_FACT not in held.facts:
        return 0.0
    let_in_seconds = min(float(held.facts.get(LET_IN_FACT, training_seconds)), training_seconds)
    return max(let_in_seconds - float(held.facts[READY_FACT]), 0.0)
