"""Names in paths and queries: each reaches its route as it is, or is refused by its field."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import httpcore
import httpx
import pytest
from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.routing import compile_path

from autoscaler.domain.errors import CastorError, NotFound, SpecError, UnknownJob
from autoscaler.service.openapi import Operation
from autoscaler.wire.access_messages import PersonChange, TokenRequest
from autoscaler.wire.client import Client, JobList, StudyClient
from autoscaler.wire.messages import Change
from autoscaler.wire.node_client import NodeClient
from tests.fakes.connections import Answering
from tests.service.conftest import TOKEN, Api
from tests.service.test_typed_client import OPERATIONS
from tests.wire.frozen_messages import example

# Client of an operation, a call of it with a name, a body and a file, and the fields of the name.
Call = Callable[[Any, str, Any, Path], object]
NAMED: Final[dict[str, tuple[type[Any], Call, tuple[str, ...]]]] = {
    "jobs_one_job": (Client, lambda c, n, *_: c.job(n), ("name",)),
    "jobs_change": (Client, lambda c, n, b, _: c.change(n, b), ("name",)),
    "jobs_spec": (Client, lambda c, n, *_: c.spec(n), ("name",)),
    "jobs_stop": (Client, lambda c, n, *_: c.stop(n), ("name",)),
    "jobs_resume": (Client, lambda c, n, b, _: c.resume(n, b), ("name",)),
    "jobs_decisions": (Client, lambda c, n, *_: c.decisions(n), ("name",)),
    "jobs_forecast": (Client, lambda c, n, *_: c.forecast(n), ("name",)),
    "jobs_history": (Client, lambda c, n, *_: c.history(n), ("name",)),
    "jobs_curve": (Client, lambda c, n, *_: c.curve(n), ("name",)),
    "jobs_outlook": (Client, lambda c, n, *_: c.outlook(n), ("name",)),
    "jobs_what_if": (Client, lambda c, n, b, _: c.assume(n, b), ("name",)),
    "jobs_logs": (Client, lambda c, n, b, _: c.logs(n, b), ("name",)),
    "jobs_outputs": (Client, lambda c, n, *_: c.outputs(n), ("name",)),
    "jobs_checkpoint": (Client, lambda c, n, *_: c.checkpoint(n), ("name",)),
    "jobs_receipt": (Client, lambda c, n, *_: c.receipt(n), ("name",)),
    "jobs_counterfactual": (Client, lambda c, n, *_: c.counterfactual(n), ("name",)),
    "jobs_jobs": (
        Client,
        lambda c, n, *_: c.job_page(JobList(person=n, team=n, study=n, text=n)),
        ("person", "team", "study", "q"),
    ),
    "bundles_has": (Client, lambda c, n, _, to: c.upload(n, to), ("sha256",)),
    "costs_keep_bill": (Client, lambda c, n, b, _: c.keep_bill(n, b), ("provider",)),
    "programs_one_program": (Client, lambda c, n, *_: c.program(n), ("name",)),
    "programs_forget": (Client, lambda c, n, *_: c.forget_program(n), ("name",)),
    "budgets_one_budget": (Client, lambda c, n, *_: c.budget(n), ("scope",)),
    "budgets_put": (Client, lambda c, n, b, _: c.set_budget(n, b), ("scope",)),
    "budgets_remove": (Client, lambda c, n, *_: c.remove_budget(n), ("scope",)),
    "people_invite": (Client, lambda c, n, b, _: c.invite(n, b), ("name",)),
    "people_change": (Client, lambda c, n, b, _: c.change_person(n, b), ("name",)),
    "people_remove": (Client, lambda c, n, *_: c.remove_person(n), ("name",)),
    "people_tokens": (Client, lambda c, n, *_: c.tokens(n), ("name",)),
    "people_create": (Client, lambda c, n, b, _: c.create_token(b, n), ("name",)),
    "people_rotate": (Client, lambda c, n, *_: c.rotate_token(n, 0.0, n), ("name", "token")),
    "people_revoke": (Client, lambda c, n, *_: c.revoke_token(n, n), ("name", "token")),
    "studies_history": (StudyClient, lambda c, *_: c.history(), ("study",)),
    "studies_view": (StudyClient, lambda c, *_: c.view(), ("study",)),
    "studies_stays": (StudyClient, lambda c, *_: c.stays(), ("study",)),
    "studies_set_budget": (StudyClient, lambda c, n, b, _: c.set_budget(1), ("study",)),
    "studies_stop": (StudyClient, lambda c, *_: c.stop(at_once=True), ("study",)),
    "studies_lease": (StudyClient, lambda c, n, b, _: c.lease(b), ("study",)),
    "studies_leave": (StudyClient, lambda c, n, *_: c.leave(n), ("study", "holder")),
    "studies_state": (StudyClient, lambda c, n, b, _: c.state(b), ("study",)),
    "studies_calls": (StudyClient, lambda c, n, *_: c.calls(n, 1.0), ("study", "holder")),
    "studies_give": (StudyClient, lambda c, n, b, _: c.answer(b), ("study",)),
    "studies_file": (StudyClient, lambda c, n, _, to: c.fetch_file(n, to), ("study", "sha256")),
    "studies_remove_file": (StudyClient, lambda c, n, *_: c.remove_file(n), ("study", "sha256")),
    "studies_remove_checkpoints": (
        StudyClient,
        lambda c, n, b, _: c.remove_checkpoints(b),
        ("study",),
    ),
    "node_grant": (NodeClient, lambda c, n, *_: c.grant(n), ("job",)),
    "node_append_log": (NodeClient, lambda c, n, *_: c.append_log(0, b"", n), ("job",)),
    "node_begin": (NodeClient, lambda c, n, *_: c.begin_trial(1.0, n), ("job",)),
    "node_answers": (NodeClient, lambda c, n, *_: c.trial_answers(1, 0, 0.0, n), ("job",)),
    "node_put_file": (
        NodeClient,
        lambda c, n, *_: c.put_trial_file(n, BytesIO(b"text")),
        ("sha256",),
    ),
}
# Of `fetch`, whose names are a path already, and of the second half of an upload.
BY_PATH: Final = {"jobs_output", "jobs_checkpoint_file", "bundles_put"}
HOSTILE: Final = (
    "",
    ".",
    "..",
    "a?b",
    "a/b",
    "../x",
    "a#b",
    "a%2Fb",
    "a&b=c",
    "\ud800",
    "a" * 300,
)


class Sent(Exception):
    """Address of a request that is not answered."""


def sent_by(name: str, text: str, file: Path) -> str:
    """Return the address that a call of an operation with a name asks for.

    Raises:
        SpecError: the client refuses the name.
    """

    def send(request: httpcore.Request, body: bytes) -> tuple[int, bytes]:
        raise Sent(request.url.target.decode())

    kind, call, _ = NAMED[name]
    rest = (text, Answering(send)) if kind is StudyClient else (Answering(send),)
    body = OPERATIONS[name].body
    try:
        client = kind("http://controller", "token", *rest)
        call(client, text, None if body is None else example(body.kind), file)
    except Sent as sent:
        return str(sent)
    raise AssertionError("nothing was sent")


def names_at(operation: Operation, target: str) -> dict[str, str]:
    """Return the names that a server finds in an address of an operation."""
    path, _, query = target.partition("?")
    found = compile_path(operation.path)[0].match(unquote(path))
    assert found, (operation.path, path)
    return found.groupdict() | {field: one for field, [one] in parse_qs(query, True).items()}


def test_each_operation_with_a_name_is_in_the_table() -> None:
    named = {name for name, operation in OPERATIONS.items() if "{" in operation.path}
    assert named - set(NAMED) == BY_PATH


@settings(deadline=None)
@given(text=st.one_of(st.text(max_size=20), st.sampled_from(HOSTILE)))
@with_example(text="a?b")
@with_example(text="..")
@with_example(text="")
@with_example(text="\udcff")
def test_any_name_reaches_its_route_or_is_refused_by_its_field(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "file"
    file.write_bytes(b"text")
    for name, (_, _, fields) in NAMED.items():
        try:
            target = sent_by(name, text, file)
        except SpecError as error:
            assert error.field in fields, name
        else:
            found = names_at(OPERATIONS[name], target)
            assert {field: found[field] for field in fields} == dict.fromkeys(fields, text), name


@pytest.mark.parametrize(
    ("part", "field"),
    [("a?b", None), ("", "path"), ("..", "path")],
)
def test_the_names_of_a_file_are_parts_of_its_path(
    tmp_path: Path, part: str, field: str | None
) -> None:
    targets: list[str] = []

    def send(request: httpcore.Request, body: bytes) -> tuple[int, bytes]:
        targets.append(request.url.target.decode())
        return 200, b""

    client = Client("http://controller", "token", Answering(send))
    source = f"digits/checkpoints/{part}/x y"
    if field is None:
        client.fetch(source, tmp_path / "f", lambda size: None)
        assert targets == ["/v1/jobs/digits/checkpoints/a%3Fb/x%20y"]
        return
    with pytest.raises(SpecError) as refused:
        client.fetch(source, tmp_path / "f", lambda size: None)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("POST", "/v1/people/a%2Fb", "name"),
        ("POST", "/v1/people/%2e%2e%2fx", "name"),
        ("POST", "/v1/people/a%3Fb", "name"),
        ("POST", "/v1/jobs//resume", "name"),
        ("POST", "/v1/jobs/a%2fb/stop", "name"),
        ("GET", "/v1/jobs/", "name"),
        ("GET", "/v1/jobs/a%00b", "name"),
        ("GET", "/v1/jobs/" + "x" * 256, "name"),
        ("DELETE", "/v1/budgets/team:a%2Fb", "scope"),
        ("DELETE", "/v1/budgets/team:a%3Fb", "team"),
        ("GET", "/v1/studies/a%2Fb", "study"),
        ("DELETE", "/v1/people/me/tokens/a%2Fb", "token"),
    ],
)
def test_a_name_that_can_not_exist_is_refused_by_its_field(
    api: Api, method: str, path: str, field: str
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    reply = httpx.request(method, f"{api.url}{path}", headers=headers)
    assert (reply.status_code, reply.json()["field"]) == (422, field), reply.text
    assert api.client.people() == api.client.people()[:1]


def test_a_thing_that_does_not_exist_is_named(api: Api) -> None:
    client, study = api.client, StudyClient(api.url, TOKEN, "no?study")
    calls: list[tuple[Callable[[], object], type[CastorError], str]] = [
        (lambda: client.job("no?job"), UnknownJob, "no?job"),
        (lambda: client.stop("no?job"), UnknownJob, "no?job"),
        (lambda: client.change("no?job", Change(priority=2.0)), UnknownJob, "no?job"),
        (lambda: client.program("no?program"), NotFound, "no?program"),
        (lambda: client.forget_program("no?program"), NotFound, "no?program"),
        (lambda: client.change_person("no?one", PersonChange()), NotFound, "no?one"),
        (lambda: client.remove_person("no?one"), NotFound, "no?one"),
        (lambda: client.tokens("no?one"), NotFound, "no?one"),
        (lambda: client.create_token(TokenRequest("ci"), "no?one"), NotFound, "no?one"),
        (lambda: client.revoke_token("no?token"), NotFound, "no?token"),
        (lambda: client.rotate_token("no?token"), NotFound, "no?token"),
        (lambda: client.remove_budget("team:none-here"), NotFound, "team:none-here"),
        (study.view, NotFound, "no?study"),
        (lambda: study.stop(at_once=False), CastorError, "no?study"),
    ]
    for call, kind, name in calls:
        with pytest.raises(kind) as refused:
            call()
        assert name in str(refused.value)
