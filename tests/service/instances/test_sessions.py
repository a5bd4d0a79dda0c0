"""Scripts that open no session run on one instance, and how scripts end is told by type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.controller.jobs.sessions import GRACE_SECONDS, SESSIONLESS_TEXT
from autoscaler.controller.observe.snapshots import job_snapshot
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.report import Ending
from autoscaler.wire.messages import JoinRequest
from autoscaler.wire.node_client import NodeClient
from tests.service.agents import SPEC, joined, node_report, training_report
from tests.service.conftest import Api


def _two(api: Api) -> tuple[tuple[HeldInstance, NodeClient], ...]:
    held, node = joined(api, instances=2)
    (second,) = (each for each in api.world.store.instances.of_job("job") if each.id != held.id)
    api.authentication.issue(second)
    other = api.node()
    other.join(JoinRequest(api.authentication.join_token(second), second.id))
    return (held, node), (second, other)


def _may_start(held: HeldInstance, node: NodeClient) -> bool:
    return node.heartbeat(node_report(held, phase=InstancePhase.READY)).may_start


def test_one_instance_runs_the_script_until_it_has_opened_a_session(api: Api) -> None:
    (held, node), (second, other) = _two(api)
    assert _may_start(second, other), "whoever asks first"
    assert not _may_start(held, node)
    other.heartbeat(node_report(second, phase=InstancePhase.STARTING))
    assert not _may_start(held, node)
    other.heartbeat(node_report(second, phase=InstancePhase.STARTING, has_session=True))
    assert _may_start(held, node)


def test_another_starts_the_script_where_the_first_was_lost(api: Api) -> None:
    (held, node), (second, other) = _two(api)
    assert _may_start(held, node)
    node.heartbeat(node_report(held, phase=InstancePhase.DRAINED))
    assert _may_start(second, other)


def test_a_job_that_has_reported_starts_on_all_its_instances(api: Api) -> None:
    (held, node), (second, other) = _two(api)
    node.heartbeat(node_report(held, reports=(training_report(),)))
    assert _may_start(second, other)


def test_a_script_without_a_session_is_said_to_be_so_and_gets_one_instance(api: Api) -> None:
    held, node = joined(api)
    node.heartbeat(node_report(held, phase=InstancePhase.STARTING))
    assert api.client.job("job").cause is None
    api.world.clock.advance(GRACE_SECONDS)
    node.heartbeat(node_report(held, phase=InstancePhase.STARTING))
    job = api.client.job("job")
    assert job.cause == SESSIONLESS_TEXT
    assert [event.text for event in job.events if event.kind == "no session"] == [job.cause]
    store = api.world.store
    record, instances = store.jobs.get("job"), store.instances.of_job("job")
    now_seconds = api.world.clock.now()
    snapshot = job_snapshot(store, record, instances, (), {}, now_seconds)
    assert (snapshot.instances.minimum, snapshot.instances.maximum) == (1, 1)
    node.heartbeat(node_report(held, phase=InstancePhase.STARTING, has_session=True))
    assert api.client.job("job").cause is None
    instances = store.instances.of_job("job")
    snapshot = job_snapshot(store, record, instances, (), {}, now_seconds)
    assert snapshot.instances.maximum == 2


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_script_is_known_to_have_no_session_after_its_end(api: Api, is_complete: bool) -> None:
    held, node = joined(api, replace(SPEC, instances=InstanceBounds(2, 2)), instances=2)
    node.heartbeat(node_report(held, phase=InstancePhase.STARTING))
    api.world.clock.advance(GRACE_SECONDS + 1.0)
    if is_complete:
        end = node_report(held, phase=InstancePhase.DRAINED, is_complete=True)
    else:
        end = node_report(held, phase=InstancePhase.PREPARING)
    node.heartbeat(replace(end, ending=Ending.WITHOUT_SESSION if is_complete else None))
    store = api.world.store
    record, instances = store.jobs.get("job"), store.instances.of_job("job")
    snapshot = job_snapshot(store, record, instances, (), {}, api.world.clock.now())
    assert (snapshot.instances.minimum, snapshot.instances.maximum) == (1, 1)


def test_a_minimum_that_needs_a_session_is_named_with_the_way_out(api: Api) -> None:
    spec = replace(SPEC, instances=InstanceBounds(2, 2))
    held, node = joined(api, spec, instances=2)
    node.heartbeat(node_report(held, phase=InstancePhase.STARTING))
    api.world.clock.advance(GRACE_SECONDS)
    node.heartbeat(node_report(held, phase=InstancePhase.STARTING))
    api.world.tick(1, agents=False)
    job = api.client.job("job")
    assert job.phase is JobPhase.RUNNING and job.is_sessionless
    assert job.cause == (
        f"{SESSIONLESS_TEXT}; its minimum of 2 instances needs a session: open one in the script, "
        "or castor set job min=1"
    )
    assert [event.text for event in job.events if event.kind == "no session"] == [job.cause]


@pytest.mark.parametrize(
    ("ending", "has_trained", "kind", "cause"),
    [
        (Ending.COMPLETE, True, "finished", None),
        (None, True, "finished", None),
        (
            Ending.EARLY,
            True,
            "ended early",
            "its script exited with status 0 after 320 of 3,200 examples: its training is not "
            "complete",
        ),
        (
            Ending.EARLY,
            False,
            "ended early",
            "its script exited with status 0 before it had trained a step",
        ),
        (
            Ending.WITHOUT_SESSION,
            False,
            "exited",
            "its script exited with status 0; it opened no training session",
        ),
    ],
)
def test_the_end_of_a_job_says_what_happened(
    api: Api, ending: Ending | None, has_trained: bool, kind: str, cause: str | None
) -> None:
    held, node = joined(api)
    reports = (training_report(),) if has_trained else ()
    node.heartbeat(node_report(held, reports=reports))
    node.heartbeat(node_report(held, phase=InstancePhase.DRAINED, is_complete=True, ending=ending))
    api.world.tick(1, agents=False)
    job = api.client.job("job")
    assert job.phase is JobPhase.FINISHED
    assert job.cause == cause
    texts = [event.text for event in job.events if event.kind == kind]
    assert texts == [cause or "its training is complete"]


def test_the_reason_of_a_script_that_stopped_is_the_jobs(api: Api) -> None:
    held, node = joined(api)
    node.heartbeat(node_report(held, reports=(training_report(),)))
    ended = {"is_complete": True, "ending": Ending.EARLY, "stop_reason": "no progress in 5 epochs"}
    node.heartbeat(node_report(held, phase=InstancePhase.DRAINED, **ended))
    api.world.tick(1, agents=False)
    job = api.client.job("job")
    assert job.phase is JobPhase.FINISHED
    assert job.cause == "its script stopped after 320 of 3,200 examples: no progress in 5 epochs"
    assert [event.text for event in job.events if event.kind == "stopped early"] == [job.cause]
