"""Counts of what the time of simulated instances was for, as their agents would report them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.time_use import CostCategory, TimeCount, TimeUse
from autoscaler.simulator.training.base import JobTraining
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class _Counted:
    """Use of an instance's time for a job, from `begun_seconds` to `until_seconds`."""

    begun_seconds: float
    until_seconds: float
    use: TimeUse = field(default_factory=TimeUse)


class TimeMeters:
    """Meter of each instance of a deployment, for the job that holds it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted: dict[tuple[str, str], _Counted] = {}

    def count(
        self, job: str, training: JobTraining, held: Iterable[HeldInstance], now_seconds: float
    ) -> None:
        """Count the time until now, in which the members of `training` have not changed."""
        members = {member.instance for member in training.members}
        for instance in held:
            before = self._counted.get((instance.id, job), _Counted(now_seconds, now_seconds))
            is_member = instance.id in members
            use = before.use + _divided(before.until_seconds, now_seconds, training, is_member)
            self._counted[instance.id, job] = _Counted(before.begun_seconds, now_seconds, use)
            present = CostCategory.USEFUL if is_member else CostCategory.IDLE
            held_seconds = instance.handed_over_seconds or instance.launched_seconds
            count = TimeCount(before.begun_seconds, use, present)
            self._store.time_uses.count(instance.id, job, count, held_seconds)


def _divided(
    from_seconds: float, to_seconds: float, training: JobTraining, is_member: bool
) -> TimeUse:
    """Return what a period was for; members pause until `training.held_up_seconds`."""
    if not is_member:
        return TimeUse(idle_seconds=to_seconds - from_seconds)
    paused_seconds = min(max(training.held_up_seconds, from_seconds), to_seconds) - from_seconds
    return TimeUse(
        useful_seconds=to_seconds - from_seconds - paused_seconds, pause_seconds=paused_seconds
    )
