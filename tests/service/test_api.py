from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import httpx
import pytest
from rich.console import Console

from autoscaler.cli.live import overview
from autoscaler.controller.offers.market import ProviderState
from autoscaler.domain.alarm import AlarmCode, ModelAlarm
from autoscaler.domain.errors import (
    Conflict,
    SpecError,
    Unavailable,
    UnknownJob,
)
from autoscaler.domain.job import InstanceBounds, JobPhase, JobSpec, SecretReference
from autoscaler.domain.objective import Objective
from autoscaler.domain.plan import Action
from autoscaler.domain.report import Failure, FailureCategory
from autoscaler.wire.messages import Change
from tests.service.agents import SPEC, joined
from tests.service.conftest import Api


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
        ("POST", "/v1/jobs/job/resume"),
        ("GET", "/v1/jobs/job/outputs"),
        ("GET", f"/v1/jobs/job/outputs/job-0-1/{'0' * 64}"),
        ("GET", "/v1/jobs/job/checkpoint"),
        ("GET", "/v1/jobs/job/checkpoints/step-000000000001/rest.pt"),
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
    for path in ("/docs", "/openapi.json"):
        assert httpx.get(api.url + path).status_code == 404
    assert httpx.get(api.url).status_code == 401
    assert httpx.get(f"{api.url}/v1/docs").status_code == 401, "not even what there is"


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
        ({"instances": InstanceBounds(offers=("smal",))}, 'instances.offers.*"small"'),
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


def test_a_decision_has_the_time_of_the_latest_plan_that_keeps_it(api: Api) -> None:
    world = api.world
    job = world.submit()
    world.set_target(job, 1)
    world.tick(6)
    decided = api.client.job(job).decision
    assert decided is not None and decided.planned_seconds is not None
    world.tick(20)
    kept = api.client.job(job).decision
    assert kept is not None and kept.at_seconds == decided.at_seconds
    assert kept.planned_seconds is not None
    assert kept.planned_seconds >= decided.planned_seconds + 20
    assert kept.stated_seconds == (
        kept.planned_seconds if kept.action == "hold" else kept.at_seconds
    )
    world.controller.status.in_force = {}
    assert api.client.job(job).decision == replace(kept, planned_seconds=None)


def test_a_stay_has_the_reason_of_the_latest_plan(api: Api) -> None:
    world = api.world
    job = world.submit()
    world.set_target(job, 1)
    world.tick(10)
    held = api.client.job(job).decision
    assert held is not None and held.action == "hold"
    in_force = world.controller.status.in_force[job]
    world.controller.status.in_force = {job: replace(in_force, reason="hold: news", note="n")}
    newest = api.client.job(job).decision
    assert newest is not None and (newest.reason, newest.note) == ("hold: news", "n")
    assert (newest.at_seconds, newest.plan) == (held.at_seconds, held.plan)
    assert newest.stated_seconds == newest.planned_seconds
    assert api.client.decisions(job)[0].reason == held.reason, "the journal stays as it is"
    moves = replace(in_force, action=Action.GROW, reason="grow")
    world.controller.status.in_force = {job: moves}
    assert api.client.job(job).decision == replace(held, planned_seconds=newest.planned_seconds)


def test_what_a_job_would_come_to_is_told_before_it_is_submitted(api: Api) -> None:
    spec = JobSpec("new", ("true",), total_examples=1e6)
    plan = api.client.plan(spec)
    assert plan.job == "new" and plan.frontier and plan.chosen is not None
    assert plan.decision.startswith("start new on 1 x")
    assert api.client.jobs() == (), "nothing was submitted"
    plan = api.client.plan(replace(spec, total_examples=None))
    assert plan.unknown is not None and "total_progress" in plan.unknown
    assert plan.known.endswith(
        "nothing of it was measured yet: no speed is known before it trains"
    )
    assert plan.rates and plan.chosen is None


def test_a_freeze_is_set_shown_and_released(api: Api) -> None:
    client = api.client
    client.submit(SPEC)
    client.freeze()
    api.world.tick(1)
    assert client.fleet().hands_off == client.job("job").hands_off == "frozen by owner"
    client.unfreeze()
    api.world.tick(1)
    assert client.fleet().hands_off is None and client.job("job").hands_off is None


def test_a_model_that_its_own_step_times_contradict_is_shown(api: Api) -> None:
    api.client.submit(SPEC)
    code = AlarmCode.MODEL_CONTRADICTED
    alarm = ModelAlarm(code, "measured 11 s a step", 1.0, 11.0, 1.2, 0.9, 1.6)
    api.world.controller.status.alarms = {"job": alarm}
    assert api.client.job("job").alarm == alarm
    headers = {"Authorization": "Bearer the owner's token"}
    text = httpx.get(api.url + "/v1/jobs/job", headers=headers).text
    assert '"code":"model-contradicted"' in text


def test_a_stall_and_the_category_of_the_last_failure_are_shown(api: Api) -> None:
    api.client.submit(SPEC)
    store = api.world.store
    failure = Failure("job-0-1", 1, 1, "no space", "s", 0, category=FailureCategory.DISK_FULL)
    store.reports.add_failure("job", failure, 1.0)
    assert api.client.job("job").failure_category is None, "it has not been judged"
    store.jobs.set_phase("job", JobPhase.FAILED, 2.0, "no space")
    assert api.client.job("job").failure_category is FailureCategory.DISK_FULL
    api.world.controller.status.stalls = {"job": "no step for 300 s"}
    assert api.client.job("job").stall is None, "it has ended"


def test_offers_can_not_be_named_before_any_are_known(api: Api) -> None:
    status = api.world.controller.status
    known, status.offers = status.offers, ()
    status.providers = {"file": ProviderState(("file: it does not answer",))}
    named = replace(SPEC, instances=InstanceBounds(offers=("small",)))
    with pytest.raises(Unavailable, match=r"file: it does not answer.*try again"):
        api.client.submit(named)
    status.offers = known
    assert api.client.submit(named).id == "job"


def test_a_job_that_stops_is_not_changed(api: Api) -> None:
    joined(api)
    api.client.stop("job")
    with pytest.raises(Conflict, match="is stopping: castor resume"):
        api.client.change("job", Change(objective=Objective(budget_usd=Decimal(100))))


def test_false_starts_are_shown_while_no_more_are_made(api: Api) -> None:
    job = api.client.submit(SPEC).id
    api.world.set_target(job, 1)
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


def test_costs_and_the_fleet_are_shown(api: Api) -> None:
    joined(api)
    api.world.tick(1, seconds=90.0, agents=False)
    costs = api.client.costs()
    assert costs.total_usd == api.client.job("job").spent_usd
    assert abs(costs.total_usd - Decimal("0.0025")) < Decimal("0.0001")
    assert set(costs.by_offer) == {"small"}
    assert costs.by_person == {"owner": costs.total_usd}
    assert sum(costs.by_month.values()) == costs.total_usd
    day = datetime.fromtimestamp(api.world.clock.now(), UTC).date()
    (cost,) = api.client.daily_costs(day, day)
    assert (cost.day, cost.offer, cost.usd) == (day, "small", costs.total_usd)
    assert api.client.daily_costs(day + timedelta(days=1), day + timedelta(days=9)) == ()
    fleet = api.client.fleet()
    assert {offer.id for offer in fleet.offers} == {"small", "large"}
    assert len(fleet.instances) == 1
