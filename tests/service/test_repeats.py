"""Creates with an idempotency key: one effect, and the same answer to each repeat."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import httpcore
import httpx
import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.errors import Conflict
from autoscaler.domain.job import JobPhase
from autoscaler.store.repositories.answers import KEPT_SECONDS
from autoscaler.store.repositories.jobs import JobFilter
from autoscaler.wire.access_messages import InvitationRequest, NewPerson, TokenRequest
from autoscaler.wire.client import Client
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import Resumption, Submission
from tests.service.agents import SPEC
from tests.service.conftest import TOKEN, Api

HEADERS: Final = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": "key-1"}


class LosesAnswers(httpcore.ConnectionInterface):
    """Connections that lose the answers to the first requests that create something."""

    def __init__(self, losses: int = 1) -> None:
        self._pool = httpcore.ConnectionPool()
        self._losses = losses

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        """Return the answer, or raise the error of a broken connection after the request."""
        response = self._pool.handle_request(request)
        if request.method == b"POST" and self._losses:
            self._losses -= 1
            response.read()
            raise httpcore.ReadError("the connection broke")
        return response


def post(api: Api, path: str, body: bytes, **headers: str) -> httpx.Response:
    return httpx.post(f"{api.url}{path}", content=body, headers={**HEADERS, **headers})


def submission(name: str = "job") -> bytes:
    return encode(Submission, Submission(replace(SPEC, name=name)))


def test_a_repeat_gets_the_same_answer_and_submits_no_second_job(api: Api) -> None:
    first = post(api, "/v1/jobs", submission())
    api.client.stop("job")
    api.world.tick(2)
    again = post(api, "/v1/jobs", submission())
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.content == first.content
    assert (first.headers.get("Idempotency-Replayed"), again.headers["Idempotency-Replayed"]) == (
        None,
        "true",
    )
    assert [job.id for job in api.client.jobs()] == ["job"]
    assert len([row for row in api.client.audit() if row.action == "submit job"]) <= 1
    assert api.woken.is_set()


def test_another_body_person_route_or_day_is_another_request(api: Api) -> None:
    post(api, "/v1/jobs", submission())
    other = post(api, "/v1/jobs", submission("other"))
    assert (other.status_code, other.json()["field"]) == (422, "Idempotency-Key")
    ada = api.client.invite("ada", InvitationRequest(Role.SUBMITTER)).token
    reply = post(api, "/v1/jobs", submission("hers"), Authorization=f"Bearer {ada}")
    assert reply.status_code == 200
    api.world.clock.advance(KEPT_SECONDS + 1)
    late = post(api, "/v1/jobs", submission("late"))
    assert late.status_code == 200
    assert sum(api.world.store.jobs.phase_counts(JobFilter()).values()) == 3


def test_a_refused_request_may_be_repeated_with_its_key(api: Api) -> None:
    api.client.submit(SPEC)
    assert post(api, "/v1/jobs", submission()).status_code == 409
    api.client.stop("job")
    api.world.store.jobs.set_phase("job", JobPhase.STOPPED, 1.0)
    reply = post(api, "/v1/jobs", submission())
    assert (reply.status_code, reply.json()["id"]) == (200, "job.2")


@pytest.mark.parametrize("key", ["", "x" * 201, "a b", "é".encode().decode("latin-1")])
def test_a_bad_key_is_refused(api: Api, key: str) -> None:
    reply = httpx.post(
        f"{api.url}/v1/jobs",
        content=submission(),
        headers=[
            (b"Authorization", f"Bearer {TOKEN}".encode()),
            (b"Idempotency-Key", key.encode("latin-1")),
        ],
    )
    assert (reply.status_code, reply.json()["field"]) == (422, "header.Idempotency-Key")


def test_repeats_at_the_same_time_create_one_job(api: Api) -> None:
    replies: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda: replies.append(post(api, "/v1/jobs", submission())))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {reply.status_code for reply in replies} <= {200, 409}
    assert len({reply.content for reply in replies if reply.status_code == 200}) == 1
    assert [job.id for job in api.client.jobs()] == ["job"]


def test_a_create_whose_answer_can_t_be_stored_creates_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise Conflict("the key is in use by now")

    monkeypatch.setattr(api.world.store.answers, "keep", fail)
    assert post(api, "/v1/jobs", submission()).status_code == 409
    assert api.client.jobs() == ()
    assert [row for row in api.client.audit() if row.subject == "job"] == []


CREATES: Final[dict[str, Callable[[Client], Any]]] = {
    "job": lambda client: client.submit(SPEC),
    "person": lambda client: client.add_person(NewPerson("ada")),
}
SECRETS: Final[dict[str, Callable[[Client], Any]]] = {
    "invitation": lambda client: client.invite("ada"),
    "token": lambda client: client.create_token(TokenRequest("ci")),
}


@pytest.mark.parametrize("name", CREATES)
def test_the_client_repeats_a_create_whose_answer_is_lost(api: Api, name: str) -> None:
    CREATES[name](Client(api.url, TOKEN, LosesAnswers(losses=2)))
    people = [person.name for person in api.client.people() if person.name != "owner"]
    assert len(api.client.jobs()) + len(people) == 1


@pytest.mark.parametrize("name", SECRETS)
def test_a_token_is_created_once_and_its_text_is_not_kept(api: Api, name: str) -> None:
    client = Client(api.url, TOKEN, LosesAnswers())
    with pytest.raises(Conflict, match="revoke or rotate the token"):
        SECRETS[name](client)
    person, token = ("ada", "invitation") if name == "invitation" else ("owner", "ci")
    created = [listed for listed in api.client.tokens(person) if listed.name == token]
    assert len(created) == 1
    store = api.directory / "castor.db"
    assert b"castor_" not in store.read_bytes()


def test_a_job_is_resumed_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.client.submit(SPEC)
    api.world.store.jobs.set_phase("job", JobPhase.STOPPED, 1.0)
    body = encode(Resumption, Resumption())
    refused = post(api, "/v1/jobs/job/resume", body)
    assert refused.status_code == 404, "it has no checkpoint"
    assert post(api, "/v1/jobs/job/resume", body).status_code == 404
    assert len(api.client.jobs()) == 1
