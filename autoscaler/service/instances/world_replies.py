"""Heartbeats of restartable jobs: places in their worlds, and measurements of restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoscaler.controller.jobs.restart_reports import (
    AgentReport,
    latest_world,
    measured_durations,
    opened_address,
    place_in,
    world_facts,
)
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, JobRecord
from autoscaler.store.store import Store
from autoscaler.wire.messages import NodeReply, NodeReport, Wanted

_WAITS = (InstancePhase.READY, InstancePhase.PREPARING)


class WorldReplies:
    """Part of the heartbeats that concerns the worlds of restartable jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def facts(
        self, held: HeldInstance, report: NodeReport, now_seconds: float
    ) -> Mapping[str, str]:
        """Return the new facts of an instance that reports now; none for other jobs."""
        concerns_world = report.generation or held.world_report or report.phase in _WAITS
        if not concerns_world or report.job not in (None, held.job):
            return {}
        if self._store.jobs.get(held.job).spec.restart is None:
            return {}
        agent_report = AgentReport(
            phase=report.phase,
            generation=report.generation,
            is_generation_over=report.is_generation_over,
            rendezvous=report.rendezvous,
            saved=report.saved,
        )
        return world_facts(held, agent_report, now_seconds)

    def measure(self, before: HeldInstance, after: HeldInstance) -> None:
        """Record the durations that ended with the last report of an instance."""
        has_begun = after.world_begun != before.world_begun
        if not has_begun and after.world_save == before.world_save:
            return
        world = latest_world(self._store.instances.of_job(after.job, include_ended=True))
        for name, seconds in measured_durations(before, after, world).items():
            self._store.measurements.add_duration(after.job, None, name, seconds)

    def reply(self, held: HeldInstance, job: JobRecord, reply: NodeReply) -> NodeReply:
        """Return the reply with the place of the instance in its job's world.

        A member that is to be reclaimed stays until its world is restarted without it.
        """
        all_instances = self._store.instances.of_job(job.id, include_ended=True)
        world = latest_world(all_instances)
        address = opened_address(world, all_instances)
        place = place_in(world, held, address)
        is_complete = any(other.completed_seconds is not None for other in all_instances)
        is_member = place is not None
        stays = is_member and held.reclaim_seconds is not None and job.phase is JobPhase.RUNNING
        return replace(
            reply,
            wanted=Wanted.RUN if stays else reply.wanted,
            may_start=is_member and address is not None and not is_complete,
            pauses=not is_member,
            place=place,
        )
