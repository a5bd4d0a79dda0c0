"""docs/api.md: every route of the application, with bodies that it takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from autoscaler.service.faults import STATUS_BY_ERROR
from autoscaler.wire.access_messages import (
    InvitationRequest,
    LoginRequest,
    LoginTokenRequest,
    NewPerson,
    PersonChange,
    TokenRequest,
)
from autoscaler.wire.bodies import read_body
from autoscaler.wire.budget_messages import BudgetRequest
from autoscaler.wire.cost_messages import BillComparison
from autoscaler.wire.messages import Change, JoinRequest, Resumption, Submission
from autoscaler.wire.outlook_messages import Hypothesis
from autoscaler.wire.study_messages import (
    StudyAnswers,
    StudyBudget,
    StudyLease,
    StudyStatement,
    TrialCalls,
)
from tests.service.conftest import application
from tests.service.test_every_route import BODIES

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
ROWS = dict(
    re.findall(
        r"^\| `([A-Z]+ /(?:v1|login|metrics)[^`]*)` \|(.*)\|.*\|$", PAGE.read_text(), re.MULTILINE
    )
)


KINDS: dict[str, Any] = {
    "POST /v1/jobs": Submission,
    "POST /v1/plans": Submission,
    "PATCH /v1/jobs/{name}": Change,
    "POST /v1/jobs/{name}/resume": Resumption,
    "POST /v1/jobs/{name}/logs": dict[str, int],
    "POST /v1/jobs/{name}/what-if": Hypothesis,
    "POST /v1/studies/{study}/budget": StudyBudget,
    "POST /v1/studies/{study}/lease": StudyLease,
    "POST /v1/studies/{study}/terms": StudyStatement,
    "POST /v1/studies/{study}/answers": StudyAnswers,
    "POST /v1/studies/{study}/checkpoints/removal": tuple[str, ...],
    "POST /v1/people": NewPerson,
    "POST /v1/people/{name}": InvitationRequest,
    "PATCH /v1/people/{name}": PersonChange,
    "POST /v1/people/{name}/tokens": TokenRequest,
    "PUT /v1/budgets/{scope}": BudgetRequest,
    "PUT /v1/costs/bills/{provider}": BillComparison,
    "POST /v1/logins": LoginRequest,
    "POST /v1/logins/token": LoginTokenRequest,
    "POST /v1/node/join": JoinRequest,
    "POST /v1/node/trial/calls": TrialCalls,
}
# Its body is long, and no person's: the page names its class.
WITHOUT_EXAMPLE = {"POST /v1/node/heartbeat"}


def test_every_route_is_on_the_page_and_no_other() -> None:
    paths = application().openapi()["paths"]
    assert set(ROWS) == {f"{method.upper()} {path}" for path in paths for method in paths[path]}


def test_every_route_that_takes_json_has_an_example() -> None:
    assert set(KINDS) == set(BODIES) - WITHOUT_EXAMPLE


@pytest.mark.parametrize("route", KINDS)
def test_the_examples_of_a_route_are_bodies_that_it_takes(route: str) -> None:
    bodies = re.findall(r"`([{\[][^`]*)`", ROWS[route])
    assert bodies
    for body in bodies:
        read_body(KINDS[route], body.encode())


def test_every_refusal_is_on_the_page() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    named = {(name, int(status)) for status, names in rows for name in re.findall(r"\w+", names)}
    assert {(kind.__name__, status) for kind, status in STATUS_BY_ERROR.items()} <= named
