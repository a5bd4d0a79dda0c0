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
    ("command", {"command": [" \t\n"]}),
    ("person", {"person": "bob"}),
    ("resumes", {"resumes": "other"}),
    ("objective.cap_usd", {"objective": {"cap_usd": "5"}}),
    ("spec.retries", {"retries": True}),
    ("spec.retries", {"retries": "1"}),
    ("spec.retries", {"retries": 1.5}),
    ("spec.priority", {"priority": True}),
    ("spec.priority", {"priority": "1"}),
    ("spec.total_examples", {"total_examples": "1e6"}),
    ("checkpoint.directory", {"checkpoint": {"directory": " "}}),
    ("setup", {"setup": ["pip install x", ""]}),
    ("spec.instances.maximum", {"instances": {"maximum": True}}),
    ("spec.instances.maxima.0.1", {"instances": {"maxima": [["small", "1"]]}}),
    ("spec.batch.initial", {"batch": {"initial": "64"}}),
    ("spec.batch.adaptive", {"batch": {"adaptive": 1}}),
    ("spec.outputs.maximum_bytes", {"outputs": {"maximum_bytes": "5"}}),
    ("spec.objective.deadline_seconds", {"objective": {"deadline_seconds": "5"}}),
    ("spec.objective.budget_usd", {"objective": {"budget_usd": True}}),
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
        ("priority", {"priority": "1"}),
        ("priority", {"priority": True}),
        ("instances.minimum", {"instances": {"minimum": True}}),
        ("objective.cap_usd", {"objective": {"cap_usd": "5"}}),
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


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("jobs/a/logs", {"a-0-1": "0"}, "a-0-1"),
        ("jobs/a/resume", {"priority": "1"}, "priority"),
        ("studies/s/budget", {"budget_usd": True}, "budget_usd"),
        ("studies/s/lease", {"holder": "me", "seconds": "60"}, "seconds"),
        (
            "studies/s/terms",
            {"holder": "me", "terms": {"to_begin": True}},
            "terms.to_begin",
        ),
        (
            "studies/s/terms",
            {"holder": "me", "terms": {}, "trials": [{"job": "a", "reports": [[1, "0.5"]]}]},
            "trials.0.reports.0.1",
        ),
        (
            "studies/s/answers",
            {"holder": "me", "answers": [{"job": "a", "incarnation": "1", "answer": {}}]},
            "answers.0.incarnation",
        ),
    ],
)
def test_a_text_or_truth_value_is_no_number(
    api: Api, path: str, body: dict[str, Any], field: str
) -> None:
    assert posted(api, "/v1/jobs", {"spec": {"name": "a", "command": ["true"]}}).is_success
    response = posted(api, f"/v1/{path}", body)
    fault = response.json()
    assert (response.status_code, fault["field"]) == (422, field), fault
    assert "number, not" in fault["message"]


def test_a_number_that_is_not_finite_is_a_word_where_it_has_a_meaning(api: Api) -> None:
    trials = [{"job": "a", "reports": [[1.0, "NaN"], [2, "-Infinity"]]}]
    assert posted(api, "/v1/studies/s/lease", {"holder": "me", "seconds": 60}).is_success
    stated = posted(
        api, "/v1/studies/s/terms", {"holder": "me", "terms": {"best": "NaN"}, "trials": trials}
    )
    assert stated.json()["error"] == "UnknownJob", "the statement itself was taken"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"spec": ', "the body is not JSON"),
        (b"", "the body is not JSON"),
        (b'{"spec": {"name": "\xff"}}', "the body is not JSON"),
    ],
)
def test_a_body_that_can_not_be_read_is_refused_like_another_value(
    api: Api, content: bytes, words: str
) -> None:
    response = httpx.post(f"{api.url}/v1/jobs", headers=HEADERS, content=content, timeout=20)
    fault = response.json()
    assert (response.status_code, fault["error"]) == (422, "SpecError")
    assert words in fault["message"]


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ('{"spec": {"name": "a", "retries": %s}}', "spec.retries"),
        (
            '{"spec": {"name": "a", "instances": {"maxima": [["a", -%s]]}}}',
            "spec.instances.maxima.0.1",
        ),
        ("[%s, " + "[" * 900 + "]" * 901, "0"),
        ("%s", None),
    ],
)
def test_a_number_of_too_many_digits_is_refused_by_its_field(
    api: Api, content: str, field: str | None
) -> None:
    body = content % ("1" * 5_000)
    response = httpx.post(f"{api.url}/v1/jobs", headers=HEADERS, content=body, timeout=20)
    fault = response.json()
    assert (response.status_code, fault["error"], fault["field"]) == (422, "SpecError", field)
    assert "more than 4,300 digits" in fault["message"]


def test_a_budget_that_is_too_large_is_called_so(api: Api) -> None:
    objective = {"budget_usd": "1" * 4_000}
    spec = {"name": "a", "command": ["true"], "objective": objective}
    fault = posted(api, "/v1/jobs", {"spec": spec}).json()
    assert fault["field"] == "objective.budget"
    assert "is too large: write at most $1,000,000,000" in fault["message"]
