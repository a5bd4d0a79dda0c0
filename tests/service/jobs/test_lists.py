"""Lists of jobs: pages, filters, and cursors that are none."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import replace

import httpx
import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import JobPhase
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.client import JobList
from tests.service.agents import SPEC, joined
from tests.service.conftest import TOKEN, Api

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def submit(api: Api, *names: str) -> None:
    for name in names:
        api.client.submit(replace(SPEC, name=name))


def test_pages_have_every_job_once(api: Api) -> None:
    submit(api, "text", "digits", "words")
    api.world.store.jobs.set_phase("digits", JobPhase.FAILED, 1.0)
    for order, ids in (
        ("newest", ["words", "digits", "text"]),
        ("oldest", ["text", "digits", "words"]),
        ("name", ["digits", "text", "words"]),
    ):
        first = api.client.job_page(JobList(limit=2, order=order))
        second = api.client.job_page(JobList(limit=2, order=order), first.cursor)
        assert [job.id for job in (*first.items, *second.items)] == ids
        assert (len(first.items), second.cursor) == (2, None)
    assert [job.id for job in api.client.jobs()] == ["words", "digits", "text"]
    assert [job.id for job in api.client.jobs(include_ended=False)] == ["words", "text"]
    failed = api.client.job_page(JobList(phases=(JobPhase.FAILED, JobPhase.STOPPED)))
    assert [job.id for job in failed.items] == ["digits"]
    assert api.client.job_page(JobList(False, (JobPhase.FAILED,))).items == ()
    assert [job.id for job in api.client.job_page(JobList(text="ORD")).items] == ["words"]
    assert [job.id for job in api.client.job_page(JobList(person="owner", limit=1)).items] == [
        "words"
    ]
    assert (
        api.client.job_page(JobList(team="nlp")).items
        == api.client.job_page(JobList(study="s")).items
        == ()
    )


def test_a_client_that_knows_no_pages_gets_the_whole_list(api: Api) -> None:
    submit(api, "text", "digits", "words")
    reply = httpx.get(f"{api.url}/v1/jobs", headers=HEADERS)
    assert [job["id"] for job in reply.json()] == ["words", "digits", "text"]
    assert "Link" not in reply.headers


def test_the_next_page_is_that_of_the_same_list(api: Api) -> None:
    submit(api, "text", "digits", "words")
    address = f"{api.url}/v1/jobs?limit=1&phase=pending&phase=running&q=d"
    found = []
    while True:
        reply = httpx.get(address, headers=HEADERS)
        found += [job["id"] for job in reply.json()]
        if "next" not in reply.links:
            break
        address = f"{api.url}{reply.links['next']['url']}"
    assert found == ["words", "digits"]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "bm9uZQ==",
        urlsafe_b64encode(b"{}").decode(),
        urlsafe_b64encode(b"[]").decode(),
        urlsafe_b64encode(b'["jobs newest", "1", "digits"]').decode(),
        urlsafe_b64encode(b'["jobs newest", true, "digits"]').decode(),
        urlsafe_b64encode(b'["jobs newest", 1e999, "digits"]').decode(),
        urlsafe_b64encode(b'["jobs newest", %d, "digits"]' % (1 << 70)).decode(),
        urlsafe_b64encode(b'["jobs newest", 1, "\\u0000"]').decode(),
        urlsafe_b64encode(b'["jobs newest", 1, "\\ud800"]').decode(),
        urlsafe_b64encode(b"[" * 200).decode(),
        urlsafe_b64encode(b'["jobs name", 1, "digits"]').decode(),
    ],
)
def test_a_cursor_of_another_list_is_refused(api: Api, cursor: str) -> None:
    reply = httpx.get(f"{api.url}/v1/jobs", params={"cursor": cursor}, headers=HEADERS)
    assert (reply.status_code, reply.json()["field"]) == (422, "cursor")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "query.limit"),
        ("limit=1001", "query.limit"),
        ("limit=x", "query.limit"),
        ("phase=lost", "query.phase.0"),
        ("sort=cost", "query.sort"),
        (f"q={'x' * 201}", "query.q"),
        ("person=a%00b", "query.person"),
        (f"cursor={'x' * 401}", "query.cursor"),
    ],
)
def test_a_bad_filter_is_refused_by_name(api: Api, query: str, field: str) -> None:
    reply = httpx.get(f"{api.url}/v1/jobs?{query}", headers=HEADERS)
    assert (reply.status_code, reply.json()["field"]) == (422, field)


def test_the_client_says_which_argument_is_wrong(api: Api) -> None:
    with pytest.raises(SpecError, match="cursor of this list"):
        api.client.job_page(JobList(), "x")


def test_rows_of_a_page_are_the_views_of_the_jobs(api: Api) -> None:
    held, _ = joined(api)
    api.world.tick(3)
    submit(api, "text")
    rows = {job.id: job for job in api.client.jobs()}
    for name in ("job", "text"):
        assert replace(api.client.job(name), events=()) == rows[name]
    assert rows["job"].decision is not None and rows["job"].usd_per_hour > 0
    assert [instance.id for instance in rows["job"].instances] == [held.id]


def test_a_list_holds_no_lines_of_logs_that_the_reader_may_not_read(api: Api) -> None:
    submit(api, "text")
    store = api.world.store
    store.jobs._change("text", lambda job: replace(job, last_lines=("secret",)))
    viewer = api.client.invite("vera", InvitationRequest(Role.VIEWER))
    assert api.client.jobs()[0].last_lines == ("secret",)
    assert api.stranger(viewer.token).jobs()[0].last_lines == ()
