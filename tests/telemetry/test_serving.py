"""`/metrics` of a whole controller, as it is served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from autoscaler.cli.serve.settings import serve_settings
from autoscaler.clock import SystemClock
from autoscaler.domain.access import Role
from autoscaler.main import Deployment, ServeSettings, serving
from autoscaler.wire.access_messages import TokenRequest
from tests.telemetry.conftest import values_of

OWNER = "the owner's token"


def settings_in(directory: Path) -> ServeSettings:
    return serve_settings(
        directory,
        devices="0",
        boot_seconds=0.0,
        fleet_usd_per_hour=5.0,
        checkpoint_seconds=300.0,
        metrics_jobs=7,
    )


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("state")
    deployment = Deployment(settings_in(directory), "http://127.0.0.1:1", SystemClock())
    deployment.authentication.people.set_owner(OWNER)
    deployment.tick()
    yield deployment
    deployment.close()


def answer(deployment: Deployment, path: str, token: str | None) -> httpx.Response:
    """Return the answer of all layers of the server to a GET."""
    lead = cast(Any, SimpleNamespace(leads=True, leader_address=lambda: None))
    app = serving._server(deployment._settings, deployment, lead).config.app

    async def ask() -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(cast(Any, app))
        async with httpx.AsyncClient(transport=transport, base_url="http://castor") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def test_a_viewers_service_token_reads_the_metrics(deployment: Deployment) -> None:
    people = deployment.authentication.people
    owner = people.identity(OWNER)
    request = TokenRequest("prometheus", is_service=True, role=Role.VIEWER)
    token = people.create(owner.person, request, owner).token
    answer(deployment, "/v1/jobs/none", OWNER)
    reply = answer(deployment, "/metrics", token)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = values_of(reply.content)
    outcome = frozenset({("outcome", "ok")})
    assert samples["castor_tick_duration_seconds_count"][outcome] >= 1
    assert samples["castor_limit"][frozenset({("limit", "fleet price"), ("unit", "usd_per_hour")})]
    route = {("method", "GET"), ("route", "/v1/jobs/{name}"), ("status", "404")}
    assert samples["castor_http_requests_total"][frozenset(route)] == 1
    calls = samples["castor_provider_call_duration_seconds_count"]
    call = {("provider", "local"), ("operation", "offers"), ("outcome", "ok")}
    assert calls[frozenset(call)] >= 1


@pytest.mark.parametrize("token", [None, "wrong", ""])
def test_nobody_reads_them_without_a_token(deployment: Deployment, token: str | None) -> None:
    reply = answer(deployment, "/metrics", token)
    assert reply.status_code == 401
    assert "castor_" not in reply.text
