from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from autoscaler.domain.job import CheckpointSpec, JobSpec
from tests.service.conftest import TOKEN, Api

HEADERS = {"Authorization": f"Bearer {TOKEN}"}


def posted(api: Api, path: str, body: object) -> httpx.Response:
    return httpx.post(f"{api.url}{path}", headers=HEADERS, json=body, timeout=20)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("name", {"name": "/tmp/victim"}),
    ("name", {"name": "*/checkpoints"}),
    ("name", {"name": ""}),
    ("command", {"command": []}),
    ("batch.max", {"batch": {"initial": 64, "maximum": 10**21, "adaptive": True}}),
    ("instances.max", {"instances": {"minimum": 1, "maximum": 10**9}}),
    ("instances.min", {"instances": {"minimum": -5, "maximum": -1}}),
    ("instances", {"instances": {"minimum": 3, "maximum": 1}}),
    ("objective.deadline", {"objective": {"deadline_seconds": "NaN"}}),
    ("study", {"study": "x/../../../../etc"}),
    ("checkpoint.directory", {"checkpoint": {"directory": "../../../etc"}}),
    ("spec.instancs", {"instancs": {"max": 4}}),
    ("spec.instances.max", {"instances": {"max": 4}}),
]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plans"])
@pytest.mark.parametrize(("field", "change"), REFUSED)
def test_a_job_that_no_file_could_hold_is_refused_by_its_field(
    api: Api, path: str, field: str, change: dict[str, Any]
) -> None:
    spec = {"name": "digits", "command": ["true"], "total_examples": 1e6, **change}
    response = posted(api, path, {"spec": spec})
    assert (response.status_code, response.json()["field"]) == (422, field), response.text
    assert api.client.jobs() == ()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("instances.max", {"instances": {"minimum": 1, "maximum": 10**9}}),
        ("instances", {"instances": {"minimum": 3, "maximum": 1}}),
        ("objective.budget", {"objective": {"budget_usd": "-5"}}),
        ("priority", {"priority": 1e300}),
        ("retries", {"retries": 5}),
    ],
)
def test_a_change_that_no_file_could_hold_is_refused_by_its_field(
    api: Api, field: str, change: dict[str, Any]
) -> None:
    assert posted(api, "/v1/jobs", {"spec": {"name": "a", "command": ["true"]}}).is_success
    response = httpx.patch(f"{api.url}/v1/jobs/a", headers=HEADERS, json=change)
    assert (response.status_code, response.json()["field"]) == (422, field), response.text


def test_a_job_that_an_earlier_release_took_hides_no_other(api: Api) -> None:
    good = JobSpec("good", ("true",))
    api.world.store.jobs.add(good, 0.0)
    broken = CheckpointSpec("../../../etc")
    api.world.store.jobs.add(replace(good, name="../../evil", checkpoint=broken), 0.0)
    jobs = {job.id: job for job in api.client.jobs()}
    assert set(jobs) == {"good", "../../evil"}
    assert jobs["../../evil"].checkpoint_directory == "../../../etc"
    api.world.tick(2)
    assert {job.id for job in api.client.jobs()} == set(jobs)
