"""OpenAPI document of the API, from the routes and the dataclasses of their messages.

Each route says by its types what it takes and answers: its parameters, a `Body`, and the class of
its response. Its docstring is the description. So the document can't differ from the routes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import get_annotations, getdoc
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from autoscaler.domain.rules import LONGEST_PATH_NAME
from autoscaler.service.access.request_gate import OPEN_PATHS
from autoscaler.service.routes.bodies import Body, Created, JsonResponse, NoContent
from autoscaler.service.routes.permits import routes_of
from autoscaler.wire.messages import PROBLEM_TYPE, Fault

OPENAPI_VERSION: Final = "3.1.0"
_PREFIX: Final = "/v1/"
_NODE_PREFIX: Final = "/v1/node/"
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_REFERENCE: Final = "#/components/schemas/{model}"
# Of each name in a path, which `request_gate` checks.
_PATH_NAME: Final = {"type": "string", "minLength": 1, "maxLength": LONGEST_PATH_NAME}
_DESCRIPTION: Final = (
    "API of `castor serve`. Money is a decimal string in US dollars, times are seconds since the "
    "Unix epoch, and names of fields end with their units. NaN and infinities are the strings "
    "`NaN`, `Infinity` and `-Infinity`. Answers may get more fields. An unknown key in a body of "
    "a person's request is refused. Errors are problems of RFC 9457."
)
TAGS: Final[Mapping[str, str]] = {
    "jobs": "Jobs: submission, changes, results and predictions.",
    "plans": "Predictions for jobs that are not submitted.",
    "bundles": "Packed working directories of jobs.",
    "fleet": "Offers, instances and costs, and switches of the whole fleet.",
    "programs": "Stored measurements of programs.",
    "budgets": "Budgets that people, teams, studies and the fleet share.",
    "people": "People, their tokens and links.",
    "audit": "Changes by people, and launches.",
    "studies": "Studies, and messages between their drivers and trials.",
    "notifications": "Notices to people by webhooks, chats and mail.",
    "logins": "Logins of people on terminals, which need no token.",
    "node": "Routes of instances, which need the token of an instance.",
    "about": "The API and the controller themselves.",
}
_OF_FRAMEWORK: Final = ("HTTPValidationError", "ValidationError")
_TAG_OF: Final = {
    "offers": "fleet",
    "costs": "fleet",
    "instances": "fleet",
    "freeze": "fleet",
    "unfreeze": "fleet",
    "drain": "fleet",
    "browser-links": "people",
    "openapi.json": "about",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, and what its route takes and answers.

    Attributes:
        method: in lower case.
        path: with the names of its parameters in braces.
        endpoint: function of its route.
        dependant: what the function needs.
        body: its body; None if it takes no JSON.
        answer: class of its response.
    """

    method: str
    path: str
    endpoint: Callable[..., Any]
    dependant: Dependant
    body: Body | None
    answer: type[Response]

    @property
    def id(self) -> str:
        """Name of the operation, unique in the document."""
        section = self.path.removeprefix(_PREFIX).partition("/")[0]
        return f"{re.sub(r'[^a-z]+', '_', section)}_{self.endpoint.__name__}"

    @property
    def tag(self) -> str:
        """Tag of the operation, one of `TAGS`."""
        section = self.path.removeprefix(_PREFIX).partition("/")[0]
        return _TAG_OF.get(section, section)

    @property
    def answer_kind(self) -> Any:
        """Type of the JSON that it answers; None if it answers none."""
        return self.answer.kind if issubclass(self.answer, JsonResponse) else None

    @property
    def query_names(self) -> frozenset[str]:
        """Names of the parameters of the query, those of dependencies included."""

        def of(dependant: Dependant) -> Iterator[str]:
            yield from (parameter.alias for parameter in dependant.query_params)
            for dependency in dependant.dependencies:
                yield from of(dependency)

        return frozenset(of(self.dependant))


def operations(app: FastAPI) -> Iterator[Operation]:
    """Yield the operations of the API, without the pages."""
    for route in routes_of(app.routes):
        endpoint = route.dependant.call
        if endpoint is None or not route.path.startswith(_PREFIX):
            continue
        answer = get_annotations(endpoint, eval_str=True).get("return", Response)
        body = next(_bodies(route.dependant), None)
        for method in sorted(route.methods):
            yield Operation(method.lower(), route.path, endpoint, route.dependant, body, answer)


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the API's routes."""
    listed = tuple(operations(app))
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version=OPENAPI_VERSION,
        description=_DESCRIPTION,
        routes=app.routes,
    )
    paths = document["paths"]
    document["paths"] = {path: paths[path] for path in paths if path.startswith(_PREFIX)}
    schemas, definitions = _schemas(listed)
    for operation in listed:
        described = document["paths"][operation.path][operation.method]
        described |= _described(operation, schemas)
        described["parameters"] = _parameters(operation, described.get("parameters", ()))
        if operation.body is not None:
            described["requestBody"] = _request_body(operation, schemas)
        elif operation.method == "put":
            described["requestBody"] = {"content": {_BYTES: {}}, "required": True}
    tags = {operation.tag for operation in listed}
    document["tags"] = [
        {"name": name, "description": text} for name, text in TAGS.items() if name in tags
    ]
    known = document.get("components", {}).get("schemas", {})
    parts = {name: schema for name, schema in known.items() if name not in _OF_FRAMEWORK}
    document["components"] = _components({**parts, **definitions.get("$defs", {})})
    return document


def _bodies(dependant: Dependant) -> Iterator[Body]:
    if isinstance(dependant.call, Body):
        yield dependant.call
    for dependency in dependant.dependencies:
        yield from _bodies(dependency)


_Schemas = Mapping[tuple[str, str, str], JsonSchemaValue]


def _schemas(listed: Sequence[Operation]) -> tuple[_Schemas, JsonSchemaValue]:
    """Return the schemas by method, path and role (body or answer), and their definitions."""
    inputs: list[tuple[Any, JsonSchemaMode, TypeAdapter[Any]]] = []
    for operation in listed:
        key = operation.method, operation.path
        if operation.body is not None:
            inputs.append(((*key, "body"), "validation", TypeAdapter(operation.body.kind)))
        if operation.answer_kind is not None:
            inputs.append(((*key, "answer"), "serialization", TypeAdapter(operation.answer_kind)))
    inputs.append((("", "", "fault"), "serialization", TypeAdapter(Fault)))
    schemas, definitions = TypeAdapter.json_schemas(
        inputs, ref_template=_REFERENCE, schema_generator=_WireSchema
    )
    return {key: schema for (key, _), schema in schemas.items()}, definitions


def _described(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    text = " ".join((getdoc(operation.endpoint) or "").split())
    is_open = operation.path in OPEN_PATHS
    scheme = "instance" if operation.path.startswith(_NODE_PREFIX) else "person"
    return {
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": text.partition(". ")[0].rstrip("."),
        "description": text,
        "security": [] if is_open else [{scheme: []}],
        "responses": {
            **_answers(operation, schemas),
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }


def _answers(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    """Return the responses of requests that are not refused."""
    answer = operation.answer
    if issubclass(answer, NoContent):
        return {"204": {"description": "Done."}}
    if issubclass(answer, Created):
        return {"201": {"description": "Stored."}}
    if operation.method == "head":
        return {"200": {"description": "It is there."}}
    if operation.answer_kind is not None:
        schema = schemas[operation.method, operation.path, "answer"]
        content: dict[str, Any] = {_JSON: {"schema": schema}}
    elif issubclass(answer, (FileResponse, StreamingResponse)):
        content = {answer.media_type or _BYTES: {}}
    else:
        content = {"text/plain": {"schema": {"type": "string"}}}
    described: dict[str, Any] = {"description": "Done.", "content": content}
    if "cursor" in operation.query_names:
        described["headers"] = {"Link": {"$ref": "#/components/headers/Link"}}
    return {"200": described}


def _parameters(operation: Operation, known: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parameters of an operation, also those of its path that only its permit reads."""
    described: list[dict[str, Any]] = []
    for parameter in known:
        schema = _without_null(parameter["schema"])
        if parameter["in"] == "path" and schema == {"type": "string"}:
            schema = _PATH_NAME
        described.append({**parameter, "schema": schema})
    names = {parameter["name"] for parameter in described if parameter["in"] == "path"}
    return described + [
        {"name": name, "in": "path", "required": True, "schema": _PATH_NAME}
        for name in re.findall(r"{(\w+)}", operation.path)
        if name not in names
    ]


def _without_null(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Return the schema of a parameter, which is absent and never null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
    if len(choices) == 1:
        return {**choices[0], **rest}
    return {**rest, "anyOf": choices} if choices else rest


def _request_body(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    assert operation.body is not None
    schema = schemas[operation.method, operation.path, "body"]
    content = {_JSON: {"schema": schema}}
    return {"content": content, "required": not operation.body.may_be_empty}


def _components(schemas: JsonSchemaValue) -> dict[str, Any]:
    problem = {
        "description": "Refused, or failed: `error` names the reason, `message` the way out.",
        "content": {PROBLEM_TYPE: {"schema": {"$ref": _REFERENCE.format(model="Fault")}}},
    }
    link = {
        "description": 'Address of the next page, with rel="next"; absent on the last page.',
        "schema": {"type": "string"},
    }
    return {
        "schemas": schemas,
        "responses": {"Problem": problem},
        "headers": {"Link": link},
        "securitySchemes": {
            "person": {"type": "http", "scheme": "bearer", "description": "Token of a person."},
            "instance": {
                "type": "http",
                "scheme": "bearer",
                "description": "Token of an instance, from POST /v1/node/join.",
            },
        },
    }


class _WireSchema(GenerateJsonSchema):
    """Schemas of values as `wire.codec` writes and `wire.bodies` reads them."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Return the schema of a number, which may be one of three words."""
        words = {"enum": ["NaN", "Infinity", "-Infinity"]}
        return {"anyOf": [super().float_schema(schema), words]}
