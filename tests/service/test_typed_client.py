"""The clients of `autoscaler.wire` beside the OpenAPI document: one method for each operation.

Each method is called, and answered with an example of what the document promises. So a route
without a method, a method without a route, another type or another body fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from inspect import get_annotations
from io import BytesIO
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import httpcore
import pytest

from autoscaler.service.openapi import Operation, operations
from autoscaler.wire.bodies import read_body
from autoscaler.wire.client import Client, JobList, StudyClient
from autoscaler.wire.codec import encode
from autoscaler.wire.http import Page
from autoscaler.wire.login_client import LoginClient
from autoscaler.wire.messages import NodeReport
from autoscaler.wire.node_client import NodeClient
from tests.fakes.connections import Answering
from tests.service.conftest import application
from tests.wire.frozen_messages import example

SHA: Final = "0" * 64
OPERATIONS: Final = {operation.id: operation for operation in operations(application())}
Call = tuple[type[Any], str, Callable[[Any, Any, Path], object]]

# Client, its method and a call of it with a client, an example of the body, and a folder.
CALLS: Final[dict[str, Call]] = {
    "jobs_submit": (Client, "submit", lambda c, body, _: c.submit(body.spec)),
    "jobs_jobs": (Client, "job_page", lambda c, *_: c.job_page(JobList())),
    "jobs_one_job": (Client, "job", lambda c, *_: c.job("digits")),
    "jobs_change": (Client, "change", lambda c, body, _: c.change("digits", body)),
    "jobs_spec": (Client, "spec", lambda c, *_: c.spec("digits")),
    "jobs_stop": (Client, "stop", lambda c, *_: c.stop("digits")),
    "jobs_resume": (Client, "resume", lambda c, body, _: c.resume("digits", body)),
    "jobs_decisions": (Client, "decisions", lambda c, *_: c.decisions("digits")),
    "jobs_forecast": (Client, "forecast", lambda c, *_: c.forecast("digits")),
    "jobs_history": (Client, "history", lambda c, *_: c.history("digits")),
    "jobs_curve": (Client, "curve", lambda c, *_: c.curve("digits")),
    "jobs_outlook": (Client, "outlook", lambda c, *_: c.outlook("digits")),
    "jobs_what_if": (Client, "assume", lambda c, body, _: c.assume("digits", body)),
    "jobs_logs": (Client, "logs", lambda c, body, _: c.logs("digits", body)),
    "jobs_outputs": (Client, "outputs", lambda c, *_: c.outputs("digits")),
    "jobs_output": (
        Client,
        "fetch",
        lambda c, _, to: c.fetch(f"digits/outputs/digits-0-1/{SHA}", to / "f", lambda size: None),
    ),
    "jobs_checkpoint": (Client, "checkpoint", lambda c, *_: c.checkpoint("digits")),
    "jobs_checkpoint_file": (
        Client,
        "fetch",
        lambda c, _, to: c.fetch("digits/checkpoints/a/b", to / "f", lambda size: None),
    ),
    "plans_plan": (Client, "plan", lambda c, body, _: c.plan(body.spec)),
    "bundles_has": (Client, "upload", lambda c, _, to: c.upload(SHA, to / "bundle")),
    "bundles_put": (Client, "upload", lambda c, _, to: c.upload(SHA, to / "bundle")),
    "fleet_fleet": (Client, "fleet", lambda c, *_: c.fleet()),
    "offers_offers": (Client, "offers", lambda c, *_: c.offers()),
    "costs_costs": (Client, "costs", lambda c, *_: c.costs()),
    "costs_daily_costs": (
        Client,
        "daily_costs",
        lambda c, *_: c.daily_costs(date(2026, 1, 1), date(2026, 1, 2)),
    ),
    "costs_compared_bills": (Client, "bills", lambda c, *_: c.bills()),
    "costs_keep_bill": (Client, "keep_bill", lambda c, body, _: c.keep_bill("aws", body)),
    "costs_focus": (
        Client,
        "download_focus",
        lambda c, _, to: c.download_focus(date(2026, 1, 1), date(2026, 1, 2), to / "f"),
    ),
    "jobs_counterfactual": (Client, "counterfactual", lambda c, *_: c.counterfactual("digits")),
    "jobs_receipt": (Client, "receipt", lambda c, *_: c.receipt("digits")),
    "freeze_freeze": (Client, "freeze", lambda c, *_: c.freeze()),
    "unfreeze_unfreeze": (Client, "unfreeze", lambda c, *_: c.unfreeze()),
    "drain_drain": (Client, "drain", lambda c, *_: c.drain()),
    "openapi_json_openapi": (Client, "openapi", lambda c, *_: c.openapi()),
    "programs_all_programs": (Client, "programs", lambda c, *_: c.programs()),
    "programs_one_program": (Client, "program", lambda c, *_: c.program("digits")),
    "programs_forget": (Client, "forget_program", lambda c, *_: c.forget_program("digits")),
    "budgets_all_budgets": (Client, "budgets", lambda c, *_: c.budgets()),
    "budgets_one_budget": (Client, "budget", lambda c, *_: c.budget("team:nlp")),
    "budgets_put": (Client, "set_budget", lambda c, body, _: c.set_budget("fleet", body)),
    "budgets_remove": (Client, "remove_budget", lambda c, *_: c.remove_budget("fleet")),
    "people_all_people": (Client, "people", lambda c, *_: c.people()),
    "people_add": (Client, "add_person", lambda c, body, _: c.add_person(body)),
    "people_invite": (Client, "invite", lambda c, body, _: c.invite("ada", body)),
    "people_change": (Client, "change_person", lambda c, body, _: c.change_person("ada", body)),
    "people_remove": (Client, "remove_person", lambda c, *_: c.remove_person("ada")),
    "people_tokens": (Client, "tokens", lambda c, *_: c.tokens()),
    "people_create": (Client, "create_token", lambda c, body, _: c.create_token(body)),
    "people_rotate": (Client, "rotate_token", lambda c, *_: c.rotate_token("ci")),
    "people_revoke": (Client, "revoke_token", lambda c, *_: c.revoke_token("ci")),
    "browser_links_browser_link": (Client, "browser_link", lambda c, *_: c.browser_link()),
    "audit_audit": (Client, "audit", lambda c, *_: c.audit()),
    "notifications_latest": (Client, "notifications", lambda c, *_: c.notifications()),
    "notifications_test": (Client, "test_notifications", lambda c, *_: c.test_notifications()),
    "studies_every_study": (Client, "studies", lambda c, *_: c.studies()),
    "studies_history": (StudyClient, "history", lambda c, *_: c.history()),
    "studies_view": (StudyClient, "view", lambda c, *_: c.view()),
    "studies_stays": (StudyClient, "stays", lambda c, *_: c.stays()),
    "studies_set_budget": (StudyClient, "set_budget", lambda c, *_: c.set_budget(Decimal(5))),
    "studies_stop": (StudyClient, "stop", lambda c, *_: c.stop(at_once=True)),
    "studies_lease": (StudyClient, "lease", lambda c, body, _: c.lease(body)),
    "studies_leave": (StudyClient, "leave", lambda c, *_: c.leave("laptop")),
    "studies_state": (StudyClient, "state", lambda c, body, _: c.state(body)),
    "studies_calls": (StudyClient, "calls", lambda c, *_: c.calls("laptop", 1.0)),
    "studies_give": (StudyClient, "answer", lambda c, body, _: c.answer(body)),
    "studies_file": (StudyClient, "fetch_file", lambda c, _, to: c.fetch_file(SHA, to / "f")),
    "studies_remove_file": (StudyClient, "remove_file", lambda c, *_: c.remove_file(SHA)),
    "studies_remove_checkpoints": (
        StudyClient,
        "remove_checkpoints",
        lambda c, body, _: c.remove_checkpoints(body),
    ),
    "logins_begin": (LoginClient, "begin", lambda c, body, _: c.begin(body)),
    "logins_token": (LoginClient, "token", lambda c, *_: c.token("code")),
    "node_join": (NodeClient, "join", lambda c, body, _: c.join(body)),
    "node_assignment": (NodeClient, "assignment", lambda c, *_: c.assignment()),
    "node_grant": (NodeClient, "grant", lambda c, *_: c.grant("digits")),
    "node_heartbeat": (NodeClient, "heartbeat", lambda c, *_: c.heartbeat(example(NodeReport))),
    "node_bundle": (NodeClient, "fetch_bundle", lambda c, _, to: c.fetch_bundle(to / "f")),
    "node_append_log": (NodeClient, "append_log", lambda c, *_: c.append_log(0, b"text")),
    "node_begin": (NodeClient, "begin_trial", lambda c, *_: c.begin_trial(1.0)),
    "node_tell": (NodeClient, "tell_trial", lambda c, body, _: c.tell_trial(body)),
    "node_put_file": (
        NodeClient,
        "put_trial_file",
        lambda c, *_: c.put_trial_file(SHA, BytesIO(b"text")),
    ),
    "node_answers": (NodeClient, "trial_answers", lambda c, *_: c.trial_answers(1, 0, 0.0)),
}


def test_each_operation_has_a_method_and_no_other() -> None:
    assert set(OPERATIONS) - set(CALLS) == set(), "operations without a method"
    assert set(CALLS) - set(OPERATIONS) == set(), "methods without an operation"


@pytest.mark.parametrize("name", CALLS)
def test_a_method_sends_and_reads_what_the_document_says(name: str, tmp_path: Path) -> None:
    (tmp_path / "bundle").write_bytes(b"text")
    operation = OPERATIONS[name]
    kind, method, call = CALLS[name]
    answer = answer_of(operation)
    sent: list[tuple[str, str, bytes]] = []

    def answering(request: httpcore.Request, body: bytes) -> tuple[int, bytes]:
        sent.append((request.method.decode().lower(), request.url.target.decode(), body))
        is_other = request.method == b"HEAD" and operation.method == "put"
        return (404, b"") if is_other else answer

    client = client_of(kind, Answering(answering))
    body = None if operation.body is None else example(operation.body.kind)
    value = call(client, body, tmp_path)
    verb, target, content = sent[-1]
    assert verb == operation.method
    path, _, query = target.partition("?")
    assert re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", operation.path), path)
    names = {part.partition("=")[0] for part in query.split("&") if part}
    assert names <= operation.query_names
    if operation.body is not None:
        read_body(operation.body.kind, content)
    if operation.answer_kind is not None:
        promised = get_annotations(getattr(kind, method), eval_str=True)["return"]
        if get_origin(promised) is Page:
            assert isinstance(value, Page)
            promised, value = tuple[get_args(promised)[0], ...], value.items
        assert promised == operation.answer_kind or promised in get_args(operation.answer_kind)
        assert encode(promised, value) == answer[1]


def answer_of(operation: Operation) -> tuple[int, bytes]:
    """Return status and body of an answer that the document promises."""
    if operation.answer_kind is None:
        return 200, b"text"
    return 200, encode(operation.answer_kind, example(operation.answer_kind))


def client_of(kind: type[Any], connections: Answering) -> Any:
    if kind is StudyClient:
        return StudyClient("http://controller", "token", "sweep", connections)
    if kind is LoginClient:
        return LoginClient("http://controller", connections)
    return kind("http://controller", "token", connections)
