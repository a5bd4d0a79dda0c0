"""Versions of objects on writes, and dry runs that write nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import httpx
import pytest

from autoscaler.domain.access import Role
from autoscaler.domain.errors import Conflict, Outdated, SpecError
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.wire.access_messages import NewPerson
from autoscaler.wire.messages import Change
from tests.service.agents import SPEC, joined
from tests.service.conftest import TOKEN, Api

HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}


def test_a_change_of_another_version_is_refused(api: Api) -> None:
    read = api.client.submit(SPEC)
    changed = api.client.change("job", Change(priority=2.0), version=read.version)
    assert changed.version != read.version
    with pytest.raises(Outdated, match="job has changed since it was read"):
        api.client.change("job", Change(priority=3.0), version=read.version)
    with pytest.raises(Outdated):
        api.client.stop("job", version=read.version)
    assert api.client.job("job").priority == 2.0
    assert api.client.job("job").phase is JobPhase.PENDING
    assert api.client.stop("job", version=changed.version).phase is JobPhase.STOPPING


def test_the_version_is_checked_again_where_the_job_is_stored(api: Api) -> None:
    version = api.client.submit(SPEC).version
    store = api.world.store
    before = store.jobs.get("job")
    store.jobs.change_spec("job", priority=2.0)

    def require(record: object) -> None:
        if record != before:
            raise Outdated("job has changed")

    with pytest.raises(Outdated):
        store.jobs.change_spec("job", priority=5.0, precondition=require)
    with pytest.raises(Outdated):
        store.jobs.request_stop("job", 1.0, require)
    assert store.jobs.get("job").spec.priority == 2.0
    assert api.client.job("job").version != version


def test_progress_does_not_change_the_version(api: Api) -> None:
    joined(api)
    before = api.client.job("job").version
    api.world.tick(3)
    store = api.world.store
    store.jobs.set_lighthouse("job", "http://elsewhere")
    after = api.client.job("job")
    assert (after.version == before) is (after.phase is JobPhase.PENDING)


@pytest.mark.parametrize("header", ['"old"', "old", 'W/"old", "older"'])
def test_the_header_is_as_http_has_it(api: Api, header: str) -> None:
    version = api.client.submit(SPEC).version
    address = f"{api.url}/v1/jobs/job"
    shown = httpx.get(address, headers=HEADERS)
    assert shown.headers["ETag"] == f'"{version}"' and shown.json()["version"] == version
    refused = httpx.patch(address, json={"priority": 2}, headers={**HEADERS, "If-Match": header})
    assert (refused.status_code, refused.json()["error"]) == (412, "Outdated")
    for accepted in ("*", f'{header}, "{version}"'):
        headers = {**HEADERS, "If-Match": accepted}
        assert httpx.patch(address, json={}, headers=headers).status_code == 200


def test_people_have_versions_too(api: Api) -> None:
    api.client.add_person(NewPerson("ada"))
    address = f"{api.url}/v1/people/ada"
    changed = httpx.patch(address, json={"role": "operator"}, headers=HEADERS)
    stale = {**HEADERS, "If-Match": '"old"'}
    assert httpx.patch(address, json={"role": "viewer"}, headers=stale).status_code == 412
    assert httpx.delete(address, headers=stale).status_code == 412
    assert [p.role for p in api.client.people() if p.name == "ada"] == [Role.OPERATOR]
    current = {**HEADERS, "If-Match": changed.headers["ETag"]}
    assert httpx.delete(address, headers=current).status_code == 204


def test_a_dry_run_answers_what_would_be_submitted_and_stores_nothing(api: Api) -> None:
    planned = api.client.try_submit(SPEC)
    assert planned.spec.person == "owner" and planned.plan.job == "job"
    assert api.client.jobs() == () and api.client.audit() == ()
    api.client.submit(SPEC)
    with pytest.raises(Conflict, match="choose another name"):
        api.client.try_submit(SPEC)
    with pytest.raises(SpecError, match="instances"):
        api.client.try_submit(replace(SPEC, instances=InstanceBounds(5, 2)))


def test_a_dry_run_of_a_change_answers_the_job_as_it_would_be(api: Api) -> None:
    api.client.submit(SPEC)
    rows = len(api.client.audit())
    tried = api.client.try_change("job", Change(priority=4.0)).job
    assert tried.priority == 4.0
    assert api.client.job("job").priority == 1.0
    assert api.client.job("job").version != tried.version
    assert len(api.client.audit()) == rows
    with pytest.raises(SpecError, match="instances"):
        api.client.try_change("job", Change(instances=InstanceBounds(5, 2)))
    with pytest.raises(Outdated):
        api.client.try_change("job", Change(priority=4.0), version="old")
