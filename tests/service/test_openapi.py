"""The OpenAPI document: complete, valid, and with what the routes refuse."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import httpx
import pytest
from jsonschema import Draft202012Validator

from autoscaler.service.openapi import OPENAPI_VERSION, TAGS, openapi_document, operations
from autoscaler.wire.codec import decode
from autoscaler.wire.messages import PROBLEM_TYPE, Fault
from tests.service.conftest import TOKEN, Api, application
from tests.service.test_every_route import BODIES

DOCUMENT: Final = openapi_document(application())
OPERATIONS: Final = tuple(operations(application()))


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    """Return a validator of a schema of the document."""
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def body_schema(route: str) -> dict[str, Any]:
    method, path = route.lower().split(" ")
    content = DOCUMENT["paths"][path][method]["requestBody"]["content"]
    return dict(content["application/json"]["schema"])


def test_the_document_names_its_version_and_only_routes_of_the_api() -> None:
    assert DOCUMENT["openapi"] == OPENAPI_VERSION
    assert all(path.startswith("/v1/") for path in DOCUMENT["paths"])
    assert {tag["name"] for tag in DOCUMENT["tags"]} == set(TAGS)


def test_each_operation_is_described_and_has_an_id_of_its_own() -> None:
    described = [DOCUMENT["paths"][operation.path][operation.method] for operation in OPERATIONS]
    assert len({one["operationId"] for one in described}) == len(described)
    for operation, one in zip(OPERATIONS, described, strict=True):
        assert one["description"], f"{operation.id} has no docstring"
        assert one["tags"][0] in TAGS
        assert one["responses"]["default"]


def test_each_schema_is_valid_and_refers_to_others_that_exist() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        Draft202012Validator.check_schema(schema)
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    text = json.dumps(DOCUMENT)
    for part in text.split('"$ref": "#/components/')[1:]:
        section, name = part.partition('"')[0].split("/")
        assert name in DOCUMENT["components"][section]


@pytest.mark.parametrize("route", BODIES)
def test_bodies_that_a_route_takes_are_valid(route: str) -> None:
    if route not in ("POST /v1/node/heartbeat", "POST /v1/studies/{study}/answers"):
        validator(body_schema(route)).validate(BODIES[route])


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"spec": {"name": "digits"}},
        {"spec": {"name": "digits", "command": ["true"], "gpu": 1}},
        {"spec": {"name": "digits", "command": "true"}},
        {"spec": {"name": "digits", "command": ["true"], "instances": {"min": 1}}},
        {"spec": {"name": "digits", "command": ["true"], "retries": 1.5}},
    ],
)
def test_bodies_with_wrong_types_or_unknown_keys_are_not_valid(api: Api, body: Any) -> None:
    assert not validator(body_schema("POST /v1/jobs")).is_valid(body)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    reply = httpx.post(f"{api.url}/v1/jobs", json=body, headers=headers)
    assert reply.status_code == 422


def test_a_refusal_is_a_problem_that_earlier_clients_read(api: Api) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    reply = httpx.get(f"{api.url}/v1/jobs?limit=0", headers=headers)
    assert reply.headers["content-type"] == PROBLEM_TYPE
    problem = reply.json()
    assert problem["status"] == reply.status_code == 422
    assert problem["type"] == "urn:castor:error:SpecError"
    assert problem["detail"] == problem["message"]
    assert (problem["error"], problem["field"]) == ("SpecError", "query.limit")
    schema = DOCUMENT["components"]["responses"]["Problem"]["content"][PROBLEM_TYPE]["schema"]
    validator(schema).validate(problem)
    assert decode(Fault, reply.content).message == problem["message"]


def test_the_document_is_served_to_people_only(api: Api) -> None:
    assert httpx.get(f"{api.url}/v1/openapi.json").status_code == 401
    assert api.client.openapi() == json.loads(json.dumps(DOCUMENT))
