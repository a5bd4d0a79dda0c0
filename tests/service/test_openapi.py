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
from tests.service.agents import SPEC
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


PARAMETERS: Final = {
    f"{operation.method} {operation.path} {parameter['name']}": parameter
    for operation in OPERATIONS
    for parameter in DOCUMENT["paths"][operation.path][operation.method]["parameters"]
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_each_parameter_has_bounds(name: str) -> None:
    parameter = PARAMETERS[name]
    schema = parameter["schema"]
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    is_bounded = {
        "integer": {"minimum", "maximum"} <= schema.keys(),
        "number": {"minimum", "maximum"} <= schema.keys(),
        "string": bool({"maxLength", "enum"} & schema.keys()) or schema.get("format") == "date",
        "array": "maxItems" in schema,
        "boolean": True,
    }
    assert is_bounded[schema["type"]], f"{name} has no bounds"


def test_each_name_in_a_path_is_a_parameter() -> None:
    for operation in OPERATIONS:
        names = set(re.findall(r"{(\w+)}", operation.path))
        described = {
            name for name in names if f"{operation.method} {operation.path} {name}" in PARAMETERS
        }
        assert names == described, operation.path


def _outside(schema: dict[str, Any]) -> list[str]:
    """Return values that a parameter's schema does not permit."""
    match schema.get("type"):
        case "integer":
            ends = (schema["minimum"] - 1, schema["maximum"] + 1)
            return [*map(str, ends), "nan", "inf", "1.5", "x", ""]
        case "number":
            return [str(schema["minimum"] - 1), f"{schema['maximum'] * 2}", "nan", "inf", "-inf"]
        case "string" if "maxLength" in schema:
            return ["x" * (schema["maxLength"] + 1)]
        case "boolean":
            return ["x", "2"]
    return []


def test_each_value_outside_of_the_bounds_is_refused_by_its_parameter(api: Api) -> None:
    studies = {"study": "sweep", "name": "job"}
    api.client.submit(SPEC)
    needed = {"holder": "me", "at_once": "true", "first": "2026-01-01", "last": "2026-01-02"}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    tried = 0
    for name, parameter in PARAMETERS.items():
        method, path, query = name.split(" ")
        is_open = not path.startswith("/v1/node/") and not path.endswith("/answers")
        if parameter["in"] != "query" or not is_open:
            continue
        address = re.sub(r"{(\w+)}", lambda part: studies.get(part[1], "x"), path)
        known = DOCUMENT["paths"][path][method]["parameters"]
        others = {one["name"]: needed[one["name"]] for one in known if one["name"] in needed}
        for value in _outside(parameter["schema"]):
            reply = httpx.request(
                method,
                f"{api.url}{address}",
                params={**others, query: value},
                json=BODIES.get(f"{method.upper()} {path}", {}),
                headers=headers,
            )
            assert reply.status_code == 422, (name, value, reply.text)
            assert reply.json()["field"] in (f"query.{query}", query), (name, value)
            tried += 1
    assert tried > 100


def test_a_name_in_a_path_beyond_its_bounds_is_refused_by_its_field(api: Api) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    tried = 0
    for name, parameter in PARAMETERS.items():
        method, path, longest = name.split(" ")
        if parameter["in"] != "path" or path.startswith("/v1/node/"):
            continue
        assert parameter["schema"]["minLength"] == 1, name
        most = parameter["schema"]["maxLength"]
        for length, is_refused in ((most, False), (most + 1, True)):
            text = ("é" * length) if is_refused else "a" * length
            address = re.sub(r"{\w+}", "job", path.replace(f"{{{longest}}}", text))
            reply = httpx.request(method, f"{api.url}{address}", headers=headers)
            assert reply.status_code < 500, (name, length, reply.text)
            if is_refused and method != "head":
                assert (reply.status_code, reply.json()["field"]) == (422, longest), name
                assert f"at most {most} characters" in reply.json()["message"]
            elif method != "head":
                assert f"at most {most} characters" not in reply.text, name
            tried += 1
    assert tried > 100


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
