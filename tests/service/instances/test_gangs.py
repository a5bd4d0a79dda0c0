"""Replies to the members of a gang."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.controller.jobs.sessions import GRACE_SECONDS
from autoscaler.controller.observe.snapshots import job_snapshot
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, ParallelismSpec
from autoscaler.domain.report import StepObservation
from autoscaler.wire.messages import JoinRequest
from autoscaler.wire.node_client import NodeClient
from tests.service.agents import SPEC, joined, node_report, training_report
from tests.service.conftest import Api

SHARDED = replace(
    SPEC, parallelism=ParallelismSpec(shard=2), instances=InstanceBounds(minimum=2, maximum=4)
)
ADDRESS = "10.0.0.1:4000"
READY = InstancePhase.READY
Member = tuple[HeldInstance, NodeClient]


def members(api: Api, instances: int = 2) -> list[Member]:
    """Launch a sharded job and let all of its instances join."""
    held, node = joined(api, SHARDED, instances)
    members = [(held, node)]
    for other in api.world.store.instances.of_job("job")[1:]:
        api.authentication.issue(other)
        node = api.node()
        node.join(JoinRequest(api.authentication.join_token(other), other.id))
        members.append((other, node))
    return members


def test_a_gang_starts_once_all_members_are_ready(api: Api) -> None:
    (leader, node), (follower, other) = members(api)
    reply = node.heartbeat(node_report(leader, phase=READY, rendezvous=ADDRESS))
    assert reply.may_start
    assert reply.place is not None and reply.place.address is None
    reply = other.heartbeat(node_report(follower, phase=READY))
    assert reply.may_start, "the gang of the instance that starts first"
    assert reply.place is not None
    assert (reply.place.index, reply.place.instances, reply.place.address) == (1, 2, ADDRESS)
    assert [each.gang for each in api.client.job("job").instances] == [
        "gang 1, 1 of 2",
        "gang 1, 2 of 2",
    ]


def test_only_one_gang_runs_the_script_until_it_has_opened_a_session(api: Api) -> None:
    first, _, (second_leader, node), _ = members(api, 4)
    first[1].heartbeat(node_report(first[0], phase=READY))
    assert not node.heartbeat(node_report(second_leader, phase=READY)).may_start
    first[1].heartbeat(node_report(first[0], phase=InstancePhase.STARTING, has_session=True))
    assert node.heartbeat(node_report(second_leader, phase=READY)).may_start


def test_a_follower_counts_as_training_when_its_leader_does(api: Api) -> None:
    (leader, node), (follower, other) = members(api)
    observed = StepObservation("core", 1, 2, 16, 0, 0.1, 0.01, 5)
    report = training_report(observations=(observed,), devices=2)
    started = {"generation": 1, "rendezvous": ADDRESS}
    node.heartbeat(node_report(leader, has_session=True, reports=(report,), **started))
    api.world.clock.advance(2 * GRACE_SECONDS)
    other.heartbeat(node_report(follower, phase=InstancePhase.STARTING, generation=1))
    phases = {held.id: held.phase for held in api.world.store.instances.of_job("job")}
    assert phases[follower.id] is InstancePhase.TRAINING
    job = api.client.job("job")
    assert not job.is_sessionless
    assert job.report is not None and job.report.replicas == 2, "a gang is two instances"


def test_a_script_without_a_session_keeps_one_gang(api: Api) -> None:
    (leader, node), _ = members(api)
    node.heartbeat(node_report(leader, phase=InstancePhase.STARTING, generation=1))
    api.world.clock.advance(GRACE_SECONDS)
    node.heartbeat(node_report(leader, phase=InstancePhase.STARTING, generation=1))
    store = api.world.store
    job, instances = store.jobs.get("job"), store.instances.of_job("job")
    snapshot = job_snapshot(store, job, instances, api.world.cloud.sold, {}, api.world.clock.now())
    assert (snapshot.instances.minimum, snapshot.instances.maximum) == (1, 2)
    cause = api.client.job("job").cause
    assert cause is not None and "runs in one gang of instances" in cause and "min=1" not in cause


def test_a_script_that_ended_starts_again_on_all_members(api: Api) -> None:
    (leader, node), (follower, other) = members(api)
    started = {"generation": 1, "rendezvous": ADDRESS}
    reply = node.heartbeat(node_report(leader, **started))
    assert reply.place is not None and reply.place.generation == 1
    ended = {"generation": 1, "is_generation_over": True}
    other.heartbeat(node_report(follower, phase=InstancePhase.PREPARING, **ended))
    reply = node.heartbeat(node_report(leader, **started))
    assert reply.place is not None
    assert (reply.place.generation, reply.place.address) == (2, None)
