"""API for the agents of instances."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from autoscaler.domain.errors import (
    NotAllowed,
    NotFound,
    SpecError,
)
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, SecretReference
from autoscaler.domain.report import Failure, MembershipPause, StepObservation
from autoscaler.domain.transfer import Transfer, TransferCount
from autoscaler.wire.messages import JoinRequest, Wanted
from autoscaler.wire.node_client import NodeClient
from tests.controller.cloud import offer
from tests.service.agents import SPEC, joined, launched, node_report, packed, training_report
from tests.service.conftest import Api


def test_trials_of_a_study_have_one_user_that_no_other_study_has(api: Api) -> None:
    """The two names have one CRC-32."""
    users = {}
    for name, study in (("a", "plumless"), ("b", "buckeroo"), ("c", "plumless")):
        held, node = joined(api, replace(SPEC, name=name, study=study))
        users[held.job] = node.assignment().user_number
    assert users["a"] == users["c"] == api.world.store.jobs.get("a").number
    assert users["b"] == api.world.store.jobs.get("b").number


def test_a_node_token_is_no_persons_token_nor_the_other_way_round(api: Api) -> None:
    held = launched(api)
    token = api.authentication.join(api.authentication.join_token(held), held.id)
    with pytest.raises(NotAllowed):
        api.stranger(token).jobs()
    with pytest.raises(NotAllowed):
        api.node("the owner's token").assignment()
    assert api.node(token).assignment().job == "job"


def test_a_join_token_serves_once_in_time_and_for_its_own_instance(api: Api) -> None:
    held = launched(api)
    token = api.authentication.join_token(held)
    with pytest.raises(NotAllowed):
        api.node().join(JoinRequest(token, "job-7-1"))
    reply = api.node().join(JoinRequest(token, held.id))
    assert reply.assignment.spec.command == ("python", "train.py")
    with pytest.raises(NotAllowed, match="used before"):
        api.node().join(JoinRequest(token, held.id))
    late = launched(api, replace(SPEC, name="late"))
    api.world.clock.advance(1000.0)
    with pytest.raises(NotAllowed, match="expired"):
        api.node().join(JoinRequest(api.authentication.join_token(late), late.id))


def test_a_join_token_lives_from_the_last_launch_call(api: Api) -> None:
    held = launched(api)
    token = api.authentication.join_token(held)
    api.world.clock.advance(1000.0)
    api.authentication.issue(held)
    assert api.authentication.join_token(held) == token, "a repeated launch is the same launch"
    assert api.node().join(JoinRequest(token, held.id)).assignment.job == "job"


def test_a_secret_that_is_gone_is_told_and_costs_no_token(api: Api, tmp_path: Path) -> None:
    file = tmp_path / "allowed" / "secret"
    file.write_text("hidden-value")
    spec = replace(SPEC, secrets={"KEY": SecretReference(file=str(file))})
    held = launched(api, spec)
    request = JoinRequest(api.authentication.join_token(held), held.id)
    file.unlink()
    for _ in range(2):
        with pytest.raises(SpecError, match=r"secrets\.KEY\.file"):
            api.node().join(request)
    (failure,) = api.world.store.reports.failures("job")
    assert failure.during_setup and str(file) in failure.cause
    assert api.client.job("job").cause == failure.cause
    file.write_text("hidden-value")
    assert api.node().join(request).assignment.secrets == {"KEY": "hidden-value"}


def test_an_instance_without_all_its_gpus_is_ended_and_its_offer_blamed(api: Api) -> None:
    held = launched(api)
    token = api.authentication.join_token(held)
    for _ in range(2):
        with pytest.raises(NotAllowed, match=r"lists 0 of 1 core devices: check .* nvidia-smi"):
            api.node().join(JoinRequest(token, held.id, accelerators=0))
    ended = api.world.store.instances.get(held.id)
    assert ended.desired is Desired.ABSENT
    assert ended.given_up_cause == "its driver lists 0 of 1 core devices"
    events = api.world.store.events.latest("job", limit=9)
    assert [event.kind for event in events].count("instance given up") == 1
    api.world.tick(3, agents=False)
    assert api.world.store.instances.get(held.id).phase is InstancePhase.ENDED


def test_the_token_of_an_instance_that_has_ended_opens_nothing(api: Api, tmp_path: Path) -> None:
    archive, sha256 = packed(tmp_path)
    api.client.submit(replace(SPEC, name="other", bundle=sha256), archive)
    held, node = joined(api, replace(SPEC, bundle=sha256))
    node.assignment()
    api.world.cloud.lose(api.world.store.instances.get(held.id).cloud_id or "")
    api.world.tick(2, agents=False)
    assert api.world.store.instances.get(held.id).phase is InstancePhase.ENDED
    with pytest.raises(NotAllowed, match="has ended"):
        node.assignment()
    with pytest.raises(NotAllowed, match="has ended"):
        node.fetch_bundle(tmp_path / "fetched")
    assert node.heartbeat(node_report(held)).wanted is Wanted.DRAIN
    assert node.append_log(0, b"last words\n") == 11
    api.client.stop("job")
    api.world.tick(3)
    assert api.client.job("job").phase is JobPhase.STOPPED
    with pytest.raises(NotAllowed, match="have ended"):
        node.append_log(11, b"more\n")


def test_a_bundle_travels_through_the_controller(api: Api, tmp_path: Path) -> None:
    archive, sha256 = packed(tmp_path)
    with pytest.raises(NotFound, match="not uploaded"):
        api.client.submit(replace(SPEC, bundle=sha256))
    api.client.submit(replace(SPEC, bundle=sha256), archive)
    api.client.stop("job")
    api.world.tick(2)
    _, node = joined(api, replace(SPEC, bundle=sha256))
    node.fetch_bundle(tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == archive.read_bytes()
    archive.write_bytes(b"x" * 2000)
    with pytest.raises(SpecError, match="castorignore"):
        api.client.submit(replace(SPEC, name="big", bundle="1" * 64), archive)
    assert not list((tmp_path / "bundles").glob(".*")), "nothing half received stays"


def test_secrets_reach_the_node_and_nobody_else(api: Api) -> None:
    spec = replace(SPEC, secrets={"HF_TOKEN": SecretReference(variable="HF_TOKEN")})
    held, node = joined(api, spec)
    assert node.assignment().secrets == {"HF_TOKEN": "hidden-value"}
    node.heartbeat(node_report(held))
    stored = b"".join(path.read_bytes() for path in api.directory.glob("castor.db*"))
    assert b"hidden-value" not in stored
    shown = httpx.get(
        f"{api.url}/v1/jobs/job", headers={"Authorization": "Bearer the owner's token"}
    )
    assert "hidden-value" not in shown.text


def test_heartbeats_are_taken_in_and_answered(api: Api) -> None:
    held, node = joined(api)
    observed = StepObservation("core", 1, 1, 32, 0, 0.1, 0.0, 50)
    training = training_report(observations=(observed,))
    reply = node.heartbeat(node_report(held, reports=(training,)))
    assert (reply.wanted, reply.attempt, reply.devices_used) == (Wanted.RUN, 1, 1)
    job = api.client.job("job")
    assert job.report is not None and job.report.step == 10
    assert job.instances[0].phase is InstancePhase.TRAINING
    assert len(api.world.store.measurements.observations("job")) == 1
    api.world.tick(1, agents=False)
    assert node.heartbeat(node_report(held)).throughput is not None
    api.client.stop("job")
    api.world.tick(1, agents=False)
    assert node.heartbeat(node_report(held)).wanted is Wanted.DRAIN
    with pytest.raises(NotAllowed):
        node.heartbeat(node_report(held, instance="job-1-1"))


def test_skipped_steps_are_an_event_each_time_that_their_number_has_doubled(api: Api) -> None:
    held, node = joined(api)
    for count in (0, 1, 1, 2, 3, 4, 7):
        training = training_report(step=100 + count, skipped_steps=count)
        node.heartbeat(node_report(held, reports=(training,)))
    texts = [e.text for e in api.world.store.events.latest("job", 50) if e.kind == "skipped"]
    assert sorted(texts) == [
        f"at least {count} of its steps skipped: their loss or gradient was not finite "
        "(NaN or infinity)"
        for count in (1, 2, 4)
    ]


def test_memory_that_ran_out_is_told_once_and_kept_for_all_later_starts(api: Api) -> None:
    held, node = joined(api)
    short = replace(training_report().bounds, kind_maxima=(("core", 8),))
    for step, bounds in ((10, short), (20, short), (30, training_report().bounds)):
        node.heartbeat(node_report(held, reports=(training_report(step, bounds=bounds),)))
    told = [e.text for e in api.world.store.events.latest("job", 50) if e.kind == "out of memory"]
    assert told == [
        "out of memory with more than 8 examples at once on a device of kind core: larger "
        "shares are split"
    ]
    assert node.assignment().spec.batch.kind_maxima == (("core", 8),)
    report = api.client.job("job").report
    assert report is not None and report.bounds == short, "another kind may have reported last"


def test_a_failure_is_kept_once_and_shown(api: Api) -> None:
    held, node = joined(api)
    failure = Failure(held.id, 1, 1, "no module named 'foo'", "x", 0, ("line one", "line two"))
    for _ in range(2):
        node.heartbeat(node_report(held, phase=InstancePhase.WAITING, failure=failure))
    assert len(api.world.store.reports.failures("job")) == 1
    job = api.client.job("job")
    assert job.cause == "no module named 'foo'"
    assert job.last_lines == ("line one", "line two")
    api.world.tick(1, agents=False)
    reply = node.heartbeat(node_report(held, phase=InstancePhase.WAITING))
    assert reply.attempt == 2
    assert reply.start_seconds is not None


def test_a_heartbeat_that_is_repeated_counts_once(api: Api) -> None:
    held, node = joined(api)
    observed = StepObservation("core", 1, 1, 32, 0, 0.1, 0.0, 50)
    pause = MembershipPause("join", 0.5, 1, 2)
    training = training_report(observations=(observed,), pauses=(pause,))
    failure = Failure(held.id, 1, 1, "it raised", "x", 0)
    report = node_report(held, reports=(training,), failure=failure, notes=("a note",))
    for _ in range(2):
        node.heartbeat(report)
    measurements = api.world.store.measurements
    assert [each.steps for each in measurements.observations("job")] == [50]
    assert [mean.count for mean in measurements.durations("job").values()] == [1]
    kinds = [event.kind for event in api.client.job("job").events]
    assert (kinds.count("failure"), kinds.count("note")) == (1, 1)


def test_a_reclaim_that_the_node_saw_releases_the_instance(api: Api) -> None:
    held, node = joined(api)
    at = api.world.clock.now() + 30
    reply = node.heartbeat(node_report(held, reclaim_seconds=at))
    assert reply.wanted is Wanted.DRAIN
    assert api.client.job("job").instances[0].reclaim_seconds == at


def test_an_end_that_the_controller_asked_for_is_no_reclaim(api: Api) -> None:
    """Machines of Compute Engine hear of any end by their power button."""
    held, node = joined(api)
    api.world.store.instances.request_termination(held.id, api.world.clock.now())
    node.heartbeat(node_report(held, reclaim_seconds=api.world.clock.now() + 30))
    assert api.world.store.instances.get(held.id).reclaim_seconds is None
    assert "reclaim" not in [event.kind for event in api.client.job("job").events]


def test_a_job_whose_end_nobody_is_left_to_tell_starts_again(api: Api) -> None:
    held, node = joined(api)
    node.heartbeat(node_report(held, is_done=True))
    api.world.tick(1, agents=False)
    reply = node.heartbeat(node_report(held, is_done=True))
    assert (reply.wanted, reply.attempt) == (Wanted.RUN, 2)
    assert api.client.job("job").phase is JobPhase.RUNNING


def test_logs_are_kept_once_and_outlive_the_instance(api: Api) -> None:
    held, node = joined(api)
    assert node.append_log(0, b"hello ") == 6
    assert node.append_log(0, b"hello ") == 6, "handed in twice, kept once"
    assert node.append_log(3, b"lo world\n") == 12
    assert node.append_log(50, b"a gap") == 12
    node.heartbeat(node_report(held, is_complete=True))
    api.world.tick(4, agents=False)
    assert api.world.store.instances.of_job("job") == ()
    (part,) = api.client.logs("job", {})
    assert (part.instance, part.text) == (held.id, "hello world\n")
    assert api.client.logs("job", {held.id: part.next_offset}) == ()


def with_one_elsewhere(api: Api) -> tuple[tuple[HeldInstance, NodeClient], ...]:
    """One that trains, and one in another network that has joined."""
    api.world.cloud.sold = (*api.world.cloud.sold, offer("far", 1, "0.05", "elsewhere"))
    near, old = joined(api)
    assert old.heartbeat(node_report(near)).may_start
    api.world.set_target("job", 1, "far")
    api.world.tick(2, agents=False)
    (far,) = (each for each in api.world.store.instances.of_job("job") if each.offer == "far")
    api.authentication.issue(far)
    new = api.node()
    new.join(JoinRequest(api.authentication.join_token(far), far.id))
    return (near, old), (far, new)


def test_one_that_others_of_its_job_can_not_reach_starts_when_they_have_left(api: Api) -> None:
    (near, old), (far, new) = with_one_elsewhere(api)
    assert not new.heartbeat(node_report(far, phase=InstancePhase.STARTING)).may_start
    assert old.heartbeat(node_report(near)).wanted is Wanted.RUN, "not at the door yet"
    failure = Failure(far.id, 1, 1, "no module named 'foo'", "x", 0, during_setup=True)
    new.heartbeat(node_report(far, phase=InstancePhase.WAITING, failure=failure))
    api.world.tick(1, agents=False)
    assert old.heartbeat(node_report(near)).wanted is Wanted.RUN, "it failed to get there"
    new.heartbeat(node_report(far, phase=InstancePhase.READY))
    api.world.tick(1, agents=False)
    assert old.heartbeat(node_report(near)).wanted is Wanted.DRAIN
    assert not new.heartbeat(node_report(far, phase=InstancePhase.READY)).may_start
    old.heartbeat(node_report(near, phase=InstancePhase.DRAINED))
    assert new.heartbeat(node_report(far, phase=InstancePhase.READY)).may_start


def test_the_script_of_an_instance_on_standby_pauses_until_it_is_called_back(api: Api) -> None:
    held, node = joined(api)
    assert not node.heartbeat(node_report(held)).pauses
    api.world.store.instances.note(held.id, {Fact.STANDBY: str(api.world.clock.now() + 25)})
    reply = node.heartbeat(node_report(held))
    assert (reply.wanted, reply.pauses, reply.may_start) == (Wanted.RUN, True, False)
    assert not node.heartbeat(node_report(held, phase=InstancePhase.READY)).may_start
    api.world.store.instances.note(held.id, {Fact.STANDBY: ""})
    reply = node.heartbeat(node_report(held, phase=InstancePhase.READY))
    assert (reply.pauses, reply.may_start) == (False, True)


def test_nobody_starts_what_another_has_completed(api: Api) -> None:
    """Start no script after another instance's has ended well, before the job has ended."""
    (near, old), (far, new) = with_one_elsewhere(api)
    old.heartbeat(node_report(near, phase=InstancePhase.DRAINED, is_complete=True))
    assert not new.heartbeat(node_report(far, phase=InstancePhase.READY)).may_start


def test_what_an_instance_has_sent_is_in_the_costs_once(api: Api) -> None:
    away = replace(offer(), network="gcp/us-central1", upload_usd_per_gb=Decimal("0.12"))
    api.world.cloud.sold = (away,)
    held, node = joined(api)
    assert api.client.costs().transfer is None
    sent = [TransferCount(5.0, Transfer(sent_bytes=part * 10**9)) for part in (1, 2, 1)]
    for count in (None, *sent, sent[1]):
        node.heartbeat(node_report(held, transfer=count, job="job"))
    api.world.clock.advance(9.0)
    costs, usd = api.client.costs(), Decimal("0.24")
    assert costs.transfer is not None
    assert (costs.transfer.total_usd, costs.transfer.by_job) == (usd, {"job": usd})
    assert (costs.transfer.by_offer, costs.usd_per_hour) == ({"small": usd}, Decimal("0.10"))
    assert list(costs.transfer.by_day) == list(costs.by_day)
    assert usd < api.client.job("job").spent_usd == costs.total_usd < usd + Decimal("0.01")
    day = date.fromisoformat(next(iter(costs.by_day)))
    assert [cost.transfer_usd for cost in api.client.daily_costs(day, day)] == [usd]


def test_numbers_that_can_not_be_are_told_once_and_the_heartbeat_stands(api: Api) -> None:
    held, node = joined(api)
    broken = StepObservation("core", 1, 1, 32, 0, float("nan"), 0.0, 50)
    for step in (10, 11, 12):
        training = training_report(step, observations=(broken,))
        node.heartbeat(node_report(held, reports=(training,), notes=("slow disk",) * 200))
    job = api.client.job("job")
    assert job.report is not None and job.report.step == 12
    assert api.world.store.measurements.observations("job") == ()
    told = [event.text for event in job.events if event.kind == "report refused"]
    assert told == [
        f"{held.id}: observations.step_seconds: must be a number above 0 and at most "
        '3.16224e+07, not "nan"'
    ]
    assert [event.text for event in job.events].count(f"{held.id}: slow disk") == 1
    node.heartbeat(node_report(held, reports=(training_report(13, parameter_bytes=-1),)))
    after = api.client.job("job")
    assert after.report == job.report, "a state that can't be used replaces none"
    assert api.world.store.instances.get(held.id).phase is InstancePhase.TRAINING
