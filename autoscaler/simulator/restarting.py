"""Agents of a simulated restartable job: its worlds, restarts and checkpoints.

The controller forms the worlds. The agents stop at once, and the job loses the time of a restart
and the work since its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.controller.jobs.restart_reports import (
    AgentReport,
    latest_world,
    measured_durations,
    members_of,
    opened_address,
    world_facts,
)
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job_world import JobWorld
from autoscaler.simulator.training.profiled import Training
from autoscaler.store.store import Store

_RENDEZVOUS = "simulated:1"


class RestartingAgents:
    """All agents of one restartable job, which saves a checkpoint every `save_seconds`."""

    def __init__(self, store: Store, job: str, training: Training, save_seconds: float) -> None:
        self._store = store
        self._job = job
        self._training = training
        self._save_seconds = save_seconds
        self._world: JobWorld | None = None
        self._saved_seconds: float | None = None
        self._saves = 0

    def next_seconds(self) -> float | None:
        """Return the time of the first step after a restart, or of the next checkpoint.

        None if the command does not run.
        """
        if not self._training.members:
            return None
        began_seconds = self._training.held_up_seconds
        if self._training.now_seconds < began_seconds:
            return began_seconds
        return max(self._saved_seconds or 0.0, began_seconds) + self._save_seconds

    def members(self, held: Sequence[HeldInstance]) -> list[HeldInstance]:
        """Return the instances that run the command now; stop it where the world has changed."""
        all_instances = self._store.instances.of_job(self._job, include_ended=True)
        world = latest_world(all_instances)
        if world is None:
            return []
        members = members_of(world, held)
        is_whole = len(members) == len(world.members)
        is_another = self._world is None or world.generation != self._world.generation
        if self._training.members and (is_another or not is_whole):
            self._training.rewind()
            self._training.train_on(())
        if not is_whole or opened_address(world, all_instances) is None:
            return []
        if is_another:
            self._world, self._saved_seconds = world, None
        return members

    def speak(
        self, held: Sequence[HeldInstance], members: Sequence[HeldInstance], now_seconds: float
    ) -> None:
        """Report phases, checkpoints and restarts of all instances."""
        self._save_if_due(now_seconds)
        running = {instance.id for instance in members}
        has_begun = now_seconds >= self._training.held_up_seconds
        for instance in held:
            phase = _phase(instance, instance.id in running, has_begun)
            is_over = instance.id not in running and instance.world_report is not None
            report = AgentReport(
                phase=phase,
                generation=0 if self._world is None else self._world.generation,
                is_generation_over=is_over,
                rendezvous=_RENDEZVOUS,
                saved=str(self._saves) if self._saved_seconds is not None else None,
            )
            facts = world_facts(instance, report, now_seconds)
            if instance.phase is not phase or facts:
                after = self._store.instances.record_node(instance.id, phase, now_seconds, facts)
                self._measure(instance, after)

    def _measure(self, before: HeldInstance, after: HeldInstance) -> None:
        for name, seconds in measured_durations(before, after, self._world).items():
            self._store.measurements.add_duration(self._job, None, name, seconds)

    def _save_if_due(self, now_seconds: float) -> None:
        due_seconds = self.next_seconds()
        began_seconds = self._training.held_up_seconds
        if due_seconds is None or not began_seconds < due_seconds <= now_seconds:
            return
        self._saved_seconds = now_seconds
        self._saves += 1
        self._training.save()


def _phase(held: HeldInstance, is_running: bool, has_begun: bool) -> InstancePhase:
    if is_running:
        return InstancePhase.TRAINING if has_begun else InstancePhase.STARTING
    is_unwanted = held.desired is Desired.ABSENT
    return InstancePhase.DRAINED if is_unwanted else InstancePhase.READY
