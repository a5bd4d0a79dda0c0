"""Durations from launch or hand-over to the first step, measured for each instance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autoscaler.controller.offers.networks import awaits_admission, waits_for_network
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import (
    HeldInstance,
    by_job,
)
from autoscaler.store.repositories.measurements import HAND_OVER_DURATION, START_DURATION
from autoscaler.store.store import Store


def measure_starts(
    store: Store, alive: Iterable[HeldInstance], since_seconds: float, now_seconds: float
) -> None:
    """Record the durations of starts that were completed since `since_seconds`.

    A start is from the launch, or from the hand-over by another job. Time in which an instance
    waits for another network's instances to leave does not count, because its job still trains
    there.
    """
    for instances in by_job(alive).values():
        for held in instances:
            noted = _note_waiting(store, held, instances, now_seconds)
            if held.training_seconds is not None and held.training_seconds > since_seconds:
                _measure_start(store, noted, held.training_seconds)


def _note_waiting(
    store: Store, held: HeldInstance, job_instances: Sequence[HeldInstance], now_seconds: float
) -> HeldInstance:
    """Return the instance with new facts: when its wait for another network began or ended."""
    is_waiting_noted = held.prepared_seconds is not None
    if not is_waiting_noted and awaits_admission(held, job_instances):
        return store.instances.note(held.id, {Fact.PREPARED: str(now_seconds)})
    is_end_noted = held.admitted_seconds is not None
    if is_waiting_noted and not is_end_noted and not waits_for_network(held, job_instances):
        return store.instances.note(held.id, {Fact.ADMITTED: str(now_seconds)})
    return held


def _measure_start(store: Store, held: HeldInstance, training_seconds: float) -> None:
    if held.launched_seconds is None:
        return
    handed_over_seconds = held.handed_over_seconds
    is_launch = handed_over_seconds is None
    duration_name = START_DURATION if is_launch else HAND_OVER_DURATION
    from_seconds = held.launched_seconds if handed_over_seconds is None else handed_over_seconds
    waited_seconds = _waited_seconds(held, training_seconds)
    start_seconds = training_seconds - from_seconds - waited_seconds
    store.measurements.add_duration(held.job, held.offer, duration_name, start_seconds)
    if is_launch and waited_seconds > 0:
        store.instances.note(held.id, {Fact.START: str(start_seconds)})


def _waited_seconds(held: HeldInstance, training_seconds: float) -> float:
    """Return how many seconds the instance waited for others before it could train.

    It waits for instances of another network to leave, or for the next start of a restartable job.
    """
    if held.world_ready_seconds is not None:
        return max(training_seconds - held.world_ready_seconds, 0.0)
    if held.prepared_seconds is None:
        return 0.0
    admitted_seconds = held.admitted_seconds
    if admitted_seconds is None or admitted_seconds > training_seconds:
        admitted_seconds = training_seconds
    return max(admitted_seconds - held.prepared_seconds, 0.0)
