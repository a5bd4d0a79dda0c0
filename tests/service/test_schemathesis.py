"""Requests drawn from the OpenAPI document, sent to the real application with a real store.

No answer is an error of the server, each one has the type and the schema that the document
promises, and no body with an unknown key is taken.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from autoscaler.domain.access import Role
from autoscaler.service.openapi import openapi_document
from autoscaler.store.opening import open_store
from autoscaler.wire.access_messages import InvitationRequest, NewPerson
from tests.controller.world import World
from tests.service.agents import joined, node_report
from tests.service.conftest import TOKEN, Api, application, served

CHECKS: Final = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
EXAMPLES: Final = 10
# Parameters of paths that exist, so that routes of one object have one.
KNOWN: Final = {"name": "job", "study": "sweep"}
DOCUMENT: Final = openapi_document(application())
SCHEMA: Final = schemathesis.openapi.from_dict(DOCUMENT)
ALL_OPERATIONS: Final = {
    operation.label: operation
    for operation in (result.ok() for result in SCHEMA.get_all_operations())
}
NODE_OPERATIONS: Final = tuple(label for label in ALL_OPERATIONS if " /v1/node/" in label)
OPERATIONS: Final = {
    label: operation for label, operation in ALL_OPERATIONS.items() if label not in NODE_OPERATIONS
}


@pytest.fixture(scope="module", params=["admin", "viewer"])
def person(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Api, str]]:
    """Yield an API with a job that trains, and the token of a person."""
    directory = tmp_path_factory.mktemp("api")
    open_store(f"sqlite:///{directory / 'castor.db'}").close()
    with served(World(directory), directory) as api:
        joined(api)
        api.world.tick(3)
        api.client.add_person(NewPerson("ada"))
        viewer = api.client.invite("vera", InvitationRequest(Role.VIEWER)).token
        yield api, TOKEN if request.param == "admin" else viewer


@pytest.mark.parametrize("label", OPERATIONS)
def test_answers_are_as_the_document_says(person: tuple[Api, str], label: str) -> None:
    api, token = person
    require_promised_answers(api, token, label)


@pytest.mark.parametrize("label", NODE_OPERATIONS)
def test_answers_to_an_instance_are_as_the_document_says(tmp_path: Path, label: str) -> None:
    """Each route has an instance of its own, since a heartbeat may say that it ends."""
    open_store(f"sqlite:///{tmp_path / 'castor.db'}").close()
    with served(World(tmp_path), tmp_path) as api:
        held, node = joined(api)
        api.world.tick(2)
        assert node.heartbeat(node_report(held)).job == held.job
        require_promised_answers(api, node.token, label)


def require_promised_answers(api: Api, token: str, label: str) -> None:
    """Check the answers to requests of one route that are drawn from the document."""
    headers = {"Authorization": f"Bearer {token}"}

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=ALL_OPERATIONS[label].as_strategy())
    def ask(case: Any) -> None:
        for name, value in KNOWN.items():
            if name in case.path_parameters:
                case.path_parameters[name] = value
        response = case.call(base_url=api.url, headers=headers)
        if response.status_code != 503:
            case.validate_response(response, checks=CHECKS)

    ask()


@pytest.mark.parametrize(
    "label",
    [
        label
        for label, operation in OPERATIONS.items()
        if any(body.media_type == "application/json" for body in operation.body)
        and not label.endswith("/logs")  # its keys are instances
    ],
)
def test_a_body_with_an_unknown_key_is_refused(person: tuple[Api, str], label: str) -> None:
    api, _ = person
    method, path = label.split(" ")
    for name, value in KNOWN.items():
        path = path.replace(f"{{{name}}}", value)
    reply = httpx.request(
        method,
        f"{api.url}{path.replace('{token}', 'ci')}",
        json={"no_such_key": 1},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    assert reply.status_code in (404, 422), reply.text


def test_an_answer_that_the_document_does_not_promise_is_noticed(person: tuple[Api, str]) -> None:
    api, token = person
    document = copy.deepcopy(DOCUMENT)
    document["components"]["schemas"]["FleetView"]["required"].append("no_such_key")
    operation = schemathesis.openapi.from_dict(document)["/v1/fleet"]["GET"]
    case = operation.Case()
    response = case.call(base_url=api.url, headers={"Authorization": f"Bearer {token}"})
    with pytest.raises(FailureGroup, match="no_such_key"):
        case.validate_response(response, checks=CHECKS)
