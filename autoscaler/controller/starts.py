"""How long instances take to their first step: learnt from each that begins to train."""

from __future__ import annotations

from collections.abc import Iterable

from autoscaler.controller.networks import is_at_the_door
from autoscaler.domain.instance import HANDED_OVER_FACT, READY_FACT, HeldInstance, by_job
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
            if READY_FACT not in held.facts and is_at_the_door(held, own):
                store.instances.note(held.id, {READY_FACT: str(now_seconds)})
            if held.training_seconds is not None and held.training_seconds > since_seconds:
                _measure_start(store, held, held.training_seconds)


def _measure_start(store: Store, held: HeldInstance, training_seconds: float) -> None:
    if held.launched_seconds is None:
        return
    given = held.facts.get(HANDED_OVER_FACT)
    what = START_DURATION if given is None else HAND_OVER_DURATION
    begun_seconds = held.launched_seconds if given is None else float(given)
    ready_seconds = float(held.facts.get(READY_FACT, training_seconds))
    store.measurements.add_duration(held.job, held.offer, what, ready_seconds - begun_seconds)
