"""Heartbeats of agents of a restartable job, over HTTP."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.job_world import JobWorld, WorldOpening
from autoscaler.domain.restart import RestartSpec
from autoscaler.store.repositories.measurements import RESTART_DURATION
from autoscaler.wire.messages import Wanted
from tests.service.agents import SPEC, joined, node_report
from tests.service.conftest import Api

RESTARTABLE = replace(SPEC, restart=RestartSpec("ckpt/*"), instances=InstanceBounds(1, 1))


def test_an_agent_learns_its_place_and_reports_its_start(api: Api) -> None:
    store, clock = api.world.store, api.world.clock
    held, node = joined(api, RESTARTABLE)
    ready = replace(node_report(held), phase=InstancePhase.READY, rendezvous="10.0.0.1:80")
    reply = node.heartbeat(ready)
    assert reply.place is None and reply.pauses and not reply.may_start
    assert store.instances.get(held.id).world_ready_seconds == clock.now()

    world = JobWorld(1, 1, clock.now(), (held.id,))
    store.instances.note(held.id, {Fact.WORLD: str(world)})
    reply = node.heartbeat(ready)
    assert reply.place is not None and (reply.place.generation, reply.place.leads) == (1, True)
    assert not reply.may_start and not reply.pauses, "the controller has not opened it yet"

    opening = WorldOpening(1, "10.0.0.1:80")
    store.instances.note(held.id, {Fact.WORLD_OPENING: str(opening)})
    reply = node.heartbeat(ready)
    assert reply.may_start and reply.place is not None
    assert reply.place.address == "10.0.0.1:80"

    clock.advance(12.0)
    trains = replace(ready, phase=InstancePhase.TRAINING, generation=1, saved="ckpt/1@5")
    node.heartbeat(trains)
    node.heartbeat(trains)
    after = store.instances.get(held.id)
    assert after.world_save is not None and after.world_save.name == "ckpt/1@5"
    assert store.measurements.durations(held.job)[None, RESTART_DURATION].seconds == 12.0


def test_a_member_that_is_taken_back_trains_until_its_world_restarts(api: Api) -> None:
    store, clock = api.world.store, api.world.clock
    held, node = joined(api, RESTARTABLE)
    node.heartbeat(replace(node_report(held), phase=InstancePhase.TRAINING, generation=1))
    store.jobs.set_phase(held.job, JobPhase.RUNNING, clock.now())
    store.instances.note(held.id, {Fact.WORLD: str(JobWorld(1, 1, clock.now(), (held.id,)))})
    store.instances.take_back(held.id, clock.now() + 120.0, clock.now())
    assert node.heartbeat(node_report(held)).wanted is Wanted.RUN
    store.instances.note(held.id, {Fact.WORLD: str(JobWorld(2, 1, clock.now(), ("other",)))})
    assert node.heartbeat(node_report(held)).wanted is Wanted.DRAIN
