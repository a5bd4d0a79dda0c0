from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from autoscaler.cli.live import overview
from autoscaler.domain.errors import (
    Conflict,
    NotAllowed,
    NotFound,
    SpecError,
    Unavailable,
    UnknownJob,
)
from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase, JobSpec, SecretReference
from autoscaler.domain.objective import Objective
from autoscaler.domain.report import Failure, MembershipPause, StepObservation, TrainingReport
from autoscaler.wire.client import NodeClient
from autoscaler.wire.messages import Change, JoinRequest, NodeReport, Wanted
from tests.service.conftest import Api

SPEC = JobSpec("job", ("python", "train.py"), instances=InstanceBounds(maximum=2))


def _launched(api: Api, spec: JobSpec = SPEC) -> HeldInstance:
    """An instance of a job that has booted, its join token issued."""
    job = api.client.submit(spec).id
    api.world.wish(job, 1)
    api.world.tick(1, agents=False)
    held = api.world.store.instances.of_job(job)[0]
    api.authentication.issue(held)
    return held


def _joined(api: Api, spec: JobSpec = SPEC) -> tuple[HeldInstance, NodeClient]:
    held = _launched(api, spec)
    node = api.node()
    node.join(JoinRequest(api.authentication.join_token(held), held.id))
    return held, node


def _report(held: HeldInstance, **changes: object) -> NodeReport:
    report = NodeReport(
        instance=held.id,
        phase=InstancePhase.TRAINING,
        attempt=1,
        devices_used=1,
        started_seconds=1.0,
    )
    return replace(report, **changes)  # type: ignore[arg-type]


def _training(step: int = 10, **changes: object) -> TrainingReport:
    report = TrainingReport(
        step=step,
        epoch=0,
        progress_examples=step * 32.0,
        total_examples=3200.0,
        batch=Batch(32, 32, 0),
        bounds=BatchBounds(32, 32, 32, False),
        replicas=1,
        devices=1,
        learning_rate=0.1,
        parameter_bytes=1000,
        goodput_measured=320.0,
    )
    return replace(report, **changes)  # type: ignore[arg-type]


def test_everything_refuses_without_a_token(api: Api) -> None:
    for method, path in (
        ("GET", "/v1/jobs"),
        ("POST", "/v1/jobs"),
        ("GET", "/v1/jobs/job"),
        ("PATCH", "/v1/jobs/job"),
        ("POST", "/v1/jobs/job/stop"),
        ("GET", "/v1/jobs/job/decisions"),
        ("GET", "/v1/jobs/job/forecast"),
        ("POST", "/v1/jobs/job/logs"),
        ("GET", "/v1/fleet"),
        ("GET", "/v1/costs"),
        ("GET", "/v1/offers"),
        ("POST", "/v1/people/ada"),
        ("GET", "/v1/programs"),
        ("GET", "/v1/programs/digits"),
        ("DELETE", "/v1/programs/digits"),
        ("PUT", f"/v1/bundles/{'0' * 64}"),
        ("POST", "/v1/node/heartbeat"),
        ("GET", "/v1/node/assignment"),
        ("GET", "/v1/node/bundle"),
        ("POST", "/v1/node/logs?offset=0"),
    ):
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic b3duZQ=="},
        ):
            reply = httpx.request(method, api.url + path, headers=headers)
            assert reply.status_code == 401, (method, path, headers)


def test_nothing_is_told_to_strangers(api: Api) -> None:
    for path in ("/", "/docs", "/openapi.json", "/v1/docs"):
        assert httpx.get(api.url + path).status_code == 404


def test_a_node_token_is_no_persons_token_nor_the_other_way_round(api: Api) -> None:
    held = _launched(api)
    token = api.authentication.join(api.authentication.join_token(held), held.id)
    with pytest.raises(NotAllowed):
        api.stranger(token).jobs()
    with pytest.raises(NotAllowed):
        api.node("the owner's token").assignment()
    assert api.node(token).assignment().job == "job"


def test_a_join_token_serves_once_in_time_and_for_its_own_instance(api: Api) -> None:
    held = _launched(api)
    token = api.authentication.join_token(held)
    with pytest.raises(NotAllowed):
        api.node().join(JoinRequest(token, "job-7-1"))
    reply = api.node().join(JoinRequest(token, held.id))
    assert reply.assignment.spec.command == ("python", "train.py")
    with pytest.raises(NotAllowed, match="used before"):
        api.node().join(JoinRequest(token, held.id))
    late = _launched(api, replace(SPEC, name="late"))
    api.world.clock.advance(1000.0)
    with pytest.raises(NotAllowed, match="expired"):
        api.node().join(JoinRequest(api.authentication.join_token(late), late.id))


def test_a_join_token_lives_from_the_last_launch_call(api: Api) -> None:
    held = _launched(api)
    token = api.authentication.join_token(held)
    api.world.clock.advance(1000.0)
    api.authentication.issue(held)
    assert api.authentication.join_token(held) == token, "a repeated launch is the same launch"
    assert api.node().join(JoinRequest(token, held.id)).assignment.job == "job"


def test_a_secret_that_is_gone_is_told_and_costs_no_token(api: Api, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hidden-value")
    spec = replace(SPEC, secrets={"KEY": SecretReference(file=str(file))})
    held = _launched(api, spec)
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


def test_the_token_of_an_instance_that_has_ended_opens_nothing(api: Api, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(b"packed")
    sha256 = hashlib.sha256(b"packed").hexdigest()
    api.client.submit(replace(SPEC, name="other", bundle=sha256), archive)
    held, node = _joined(api, replace(SPEC, bundle=sha256))
    node.assignment()
    api.world.cloud.lose(api.world.store.instances.get(held.id).cloud_id or "")
    api.world.tick(2, agents=False)
    assert api.world.store.instances.get(held.id).phase is InstancePhase.ENDED
    with pytest.raises(NotAllowed, match="has ended"):
        node.assignment()
    with pytest.raises(NotAllowed, match="has ended"):
        node.fetch_bundle(tmp_path / "fetched")
    assert node.heartbeat(_report(held)).wanted is Wanted.DRAIN
    assert node.append_log(0, b"last words\n") == 11
    api.client.stop("job")
    api.world.tick(3)
    assert api.client.job("job").phase is JobPhase.STOPPED
    with pytest.raises(NotAllowed, match="have ended"):
        node.append_log(11, b"more\n")


def test_a_job_is_submitted_shown_changed_and_stopped(api: Api) -> None:
    client = api.client
    view = client.submit(SPEC)
    assert (view.id, view.phase) == ("job", JobPhase.PENDING)
    with pytest.raises(Conflict, match="castor stop"):
        client.submit(SPEC)
    changed = client.change("job", Change(instances=InstanceBounds(maximum=4)))
    assert changed.bounds.maximum == 4
    assert client.stop("job").phase is JobPhase.STOPPING
    api.world.tick(2)
    assert client.job("job").phase is JobPhase.STOPPED
    with pytest.raises(Conflict, match="ended already"):
        client.stop("job")
    assert [job.id for job in client.jobs()] == ["job"]
    assert client.jobs(include_ended=False) == ()
    with pytest.raises(UnknownJob, match="did you mean"):
        client.job("jop")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"instances": InstanceBounds(offers=("smal",))}, "instances.offers.*'small'"),
        ({"instances": InstanceBounds(minimum=9, maximum=9)}, "instances.min.*devices"),
        ({"objective": Objective(deadline_seconds=5.0)}, "objective.deadline"),
        ({"objective": Objective(budget_usd=Decimal("0.0000001"))}, "objective.budget"),
        ({"secrets": {"KEY": SecretReference(variable="GONE")}}, "secrets.KEY.variable.*GONE"),
        ({"secrets": {"KEY": SecretReference(file="/no/such")}}, "secrets.KEY.file.*/no/such"),
    ],
)
def test_what_can_not_run_here_is_refused_with_the_key_and_the_way_out(
    api: Api, changes, names: str
) -> None:
    with pytest.raises(SpecError, match=names):
        api.client.submit(replace(SPEC, **changes))
    assert api.client.jobs() == ()


def test_what_a_job_would_come_to_is_told_before_it_is_submitted(api: Api) -> None:
    spec = JobSpec("new", ("true",), total_examples=1e6)
    plan = api.client.plan(spec)
    assert plan.job == "new" and plan.frontier and plan.chosen is not None
    assert plan.decision.startswith("start new on 1 x")
    assert api.client.jobs() == (), "nothing was submitted"
    with pytest.raises(SpecError, match="total_progress"):
        api.client.plan(replace(spec, total_examples=None))


def test_a_freeze_is_set_shown_and_released(api: Api) -> None:
    client = api.client
    client.submit(SPEC)
    client.freeze()
    api.world.tick(1)
    assert client.fleet().hands_off == client.job("job").hands_off == "frozen by owner"
    client.unfreeze()
    api.world.tick(1)
    assert client.fleet().hands_off is None and client.job("job").hands_off is None


def test_offers_can_not_be_named_before_any_are_known(api: Api) -> None:
    status = api.world.controller.status
    known, status.offers, status.trouble = status.offers, (), "file: it does not answer"
    named = replace(SPEC, instances=InstanceBounds(offers=("small",)))
    with pytest.raises(Unavailable, match=r"file: it does not answer.*try again"):
        api.client.submit(named)
    status.offers = known
    assert api.client.submit(named).id == "job"


def test_a_job_that_stops_is_not_changed(api: Api) -> None:
    _joined(api)
    api.client.stop("job")
    with pytest.raises(Conflict, match="is stopping: submit it again"):
        api.client.change("job", Change(objective=Objective(budget_usd=Decimal(100))))


def test_false_starts_are_shown_while_no_more_are_made(api: Api) -> None:
    job = api.client.submit(SPEC).id
    api.world.wish(job, 1)
    for _ in range(6):
        api.world.tick(1, agents=False)
        for seen in api.world.cloud.running():
            api.world.cloud.lose(seen.id)
    view = api.client.job(job)
    (text,) = view.false_starts
    assert "small: 3 starts in a row ended before they trained" in text
    assert text in {event.text for event in view.events}
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(overview([view], api.client.fleet(), api.world.clock.now()))
    assert text in console.export_text()
    api.world.clock.advance(60.0)
    assert api.client.job(job).false_starts == ()


def test_a_malformed_request_is_refused_with_the_field(api: Api) -> None:
    headers = {"Authorization": "Bearer the owner's token"}
    body = {"spec": {"name": 7}}
    reply = httpx.post(f"{api.url}/v1/jobs", json=body, headers=headers)
    assert reply.status_code == 422
    assert reply.json()["error"] == "SpecError"
    assert "spec" in reply.json()["field"]


def test_a_bundle_travels_through_the_controller(api: Api, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(b"packed")
    sha256 = hashlib.sha256(b"packed").hexdigest()
    with pytest.raises(NotFound, match="not uploaded"):
        api.client.submit(replace(SPEC, bundle=sha256))
    api.client.submit(replace(SPEC, bundle=sha256), archive)
    api.client.stop("job")
    api.world.tick(2)
    _, node = _joined(api, replace(SPEC, bundle=sha256))
    node.fetch_bundle(tmp_path / "fetched")
    assert (tmp_path / "fetched").read_bytes() == b"packed"
    archive.write_bytes(b"x" * 2000)
    with pytest.raises(SpecError, match="castorignore"):
        api.client.submit(replace(SPEC, name="big", bundle="1" * 64), archive)
    assert not list((tmp_path / "bundles").glob(".*")), "nothing half received stays"


def test_secrets_reach_the_node_and_nobody_else(api: Api) -> None:
    spec = replace(SPEC, secrets={"HF_TOKEN": SecretReference(variable="HF_TOKEN")})
    held, node = _joined(api, spec)
    assert node.assignment().secrets == {"HF_TOKEN": "hidden-value"}
    node.heartbeat(_report(held))
    stored = b"".join(path.read_bytes() for path in api.directory.glob("castor.db*"))
    assert b"hidden-value" not in stored
    shown = httpx.get(
        f"{api.url}/v1/jobs/job", headers={"Authorization": "Bearer the owner's token"}
    )
    assert "hidden-value" not in shown.text


def test_heartbeats_are_taken_in_and_answered(api: Api) -> None:
    held, node = _joined(api)
    observed = StepObservation("core", 1, 1, 32, 0, 0.1, 0.0, 50)
    training = _training(observations=(observed,))
    reply = node.heartbeat(_report(held, reports=(training,)))
    assert (reply.wanted, reply.attempt, reply.devices_used) == (Wanted.RUN, 1, 1)
    job = api.client.job("job")
    assert job.report is not None and job.report.step == 10
    assert job.instances[0].phase is InstancePhase.TRAINING
    assert len(api.world.store.measurements.observations("job")) == 1
    api.world.tick(1, agents=False)
    assert node.heartbeat(_report(held)).throughput is not None
    api.client.stop("job")
    api.world.tick(1, agents=False)
    assert node.heartbeat(_report(held)).wanted is Wanted.DRAIN
    with pytest.raises(NotAllowed):
        node.heartbeat(_report(held, instance="job-1-1"))


def test_a_failure_is_kept_once_and_shown(api: Api) -> None:
    held, node = _joined(api)
    failure = Failure(held.id, 1, 1, "no module named 'foo'", "x", 0, ("line one", "line two"))
    for _ in range(2):
        node.heartbeat(_report(held, phase=InstancePhase.WAITING, failure=failure))
    assert len(api.world.store.reports.failures("job")) == 1
    job = api.client.job("job")
    assert job.cause == "no module named 'foo'"
    assert job.last_lines == ("line one", "line two")
    api.world.tick(1, agents=False)
    reply = node.heartbeat(_report(held, phase=InstancePhase.WAITING))
    assert reply.attempt == 2
    assert reply.start_seconds is not None


def test_a_heartbeat_that_is_repeated_counts_once(api: Api) -> None:
    held, node = _joined(api)
    observed = StepObservation("core", 1, 1, 32, 0, 0.1, 0.0, 50)
    pause = MembershipPause("join", 0.5, 1, 2)
    training = _training(observations=(observed,), pauses=(pause,))
    failure = Failure(held.id, 1, 1, "it raised", "x", 0)
    report = _report(held, reports=(training,), failure=failure, notes=("a note",))
    for _ in range(2):
        node.heartbeat(report)
    measurements = api.world.store.measurements
    assert [each.steps for each in measurements.observations("job")] == [50]
    assert [mean.count for mean in measurements.durations("job").values()] == [1]
    kinds = [event.kind for event in api.client.job("job").events]
    assert (kinds.count("failure"), kinds.count("note")) == (1, 1)


def test_a_reclaim_that_the_node_saw_releases_the_instance(api: Api) -> None:
    held, node = _joined(api)
    at = api.world.clock.now() + 30
    reply = node.heartbeat(_report(held, reclaim_seconds=at))
    assert reply.wanted is Wanted.DRAIN
    assert api.client.job("job").instances[0].reclaim_seconds == at


def test_a_job_whose_end_nobody_is_left_to_tell_starts_again(api: Api) -> None:
    held, node = _joined(api)
    node.heartbeat(_report(held, is_done=True))
    api.world.tick(1, agents=False)
    reply = node.heartbeat(_report(held, is_done=True))
    assert (reply.wanted, reply.attempt) == (Wanted.RUN, 2)
    assert api.client.job("job").phase is JobPhase.RUNNING


def test_logs_are_kept_once_and_outlive_the_instance(api: Api) -> None:
    held, node = _joined(api)
    assert node.append_log(0, b"hello ") == 6
    assert node.append_log(0, b"hello ") == 6, "handed in twice, kept once"
    assert node.append_log(3, b"lo world\n") == 12
    assert node.append_log(50, b"a gap") == 12
    node.heartbeat(_report(held, is_complete=True))
    api.world.tick(4, agents=False)
    assert api.world.store.instances.of_job("job") == ()
    (part,) = api.client.logs("job", {})
    assert (part.instance, part.text) == (held.id, "hello world\n")
    assert api.client.logs("job", {held.id: part.next_offset}) == ()


def test_costs_and_the_fleet_are_shown(api: Api) -> None:
    _joined(api)
    api.world.tick(1, seconds=90.0, agents=False)
    costs = api.client.costs()
    assert costs.total_usd == api.client.job("job").spent_usd
    assert abs(costs.total_usd - Decimal("0.0025")) < Decimal("0.0001")
    assert set(costs.by_offer) == {"small"}
    fleet = api.client.fleet()
    assert {offer.id for offer in fleet.offers} == {"small", "large"}
    assert len(fleet.instances) == 1
