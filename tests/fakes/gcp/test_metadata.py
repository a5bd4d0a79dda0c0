"""Metadata and identity tokens of instances."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jwt
import pytest

from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.clients import HTTP, ZONE, ProjectClients
from tests.fakes.gcp.identity import KEYS_PATH, TokenSigner, signer

FLAVOR = {"Metadata-Flavor": "Google"}
AUDIENCE = "https://castor.example"
UNTIMED: Any = {"verify_exp": False, "verify_iat": False}
IDENTITY = "instance/service-accounts/default/identity"


def ask(clients: ProjectClients, path: str, **query: str) -> httpx.Response:
    url = f"{clients.fake.metadata_url(clients.name, 'one')}/computeMetadata/v1/{path}"
    return HTTP.get(url, params=query, headers=FLAVOR)


def test_an_instance_learns_who_it_is(clients: ProjectClients) -> None:
    instance = clients.running("one")
    assert ask(clients, "instance/id").text == str(instance.id)
    assert ask(clients, "instance/name").text == "one"
    zone = f"projects/{clients.project.number}/zones/{ZONE}"
    assert ask(clients, "instance/zone").text == zone
    assert ask(clients, "instance/attributes/startup-script").text == "#!/bin/bash"
    assert ask(clients, "instance/attributes/").text == "startup-script\n"
    whole = ask(clients, "instance/attributes/", recursive="true").json()
    assert whole == {"startup-script": "#!/bin/bash"}
    assert ask(clients, "project/project-id").text == clients.name
    token = json.loads(ask(clients, "instance/service-accounts/default/token").text)
    assert token["token_type"] == "Bearer"
    for path in ("instance/attributes/none", "instance/nothing", "instance/name/"):
        assert ask(clients, path).status_code == 404


def test_only_who_means_it_is_answered(clients: ProjectClients) -> None:
    clients.running("one")
    url = f"{clients.fake.metadata_url(clients.name, 'one')}/computeMetadata/v1/instance/id"
    assert HTTP.get(url).status_code == 403
    assert HTTP.get(url, headers={**FLAVOR, "X-Forwarded-For": "x"}).status_code == 403
    assert HTTP.get(url, headers=FLAVOR).headers["Metadata-Flavor"] == "Google"
    clients.wait(clients.delete("one"))
    assert HTTP.get(url, headers=FLAVOR).status_code == 404


def test_a_preemption_is_told_to_whoever_waits(clients: ProjectClients) -> None:
    clients.running("one")
    seen = ask(clients, "instance/preempted")
    assert seen.text == "FALSE"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(
            ask,
            clients,
            "instance/preempted",
            wait_for_change="true",
            last_etag=seen.headers["ETag"],
        )
        lifecycle.preempt(clients.project, "one")
        assert waiting.result(timeout=60).text == "TRUE"


def test_a_wait_without_a_change_ends(clients: ProjectClients) -> None:
    clients.running("one")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(
            ask, clients, "instance/preempted", wait_for_change="true", timeout_sec="60"
        )
        while not waiting.done():
            clients.clock.advance(1.0)
        assert waiting.result().text == "FALSE"


def claims(clients: ProjectClients, token: str) -> dict[str, Any]:
    """Return the claims of a token, verified with Google's keys at the project's time."""
    keys = jwt.PyJWKClient(clients.fake.url + KEYS_PATH)
    key = keys.get_signing_key_from_jwt(token)
    verified: dict[str, Any] = jwt.decode(
        token, key, algorithms=["RS256"], audience=AUDIENCE, options=UNTIMED
    )
    return verified


def test_an_instance_proves_who_it_is(clients: ProjectClients) -> None:
    instance = clients.running("one")
    proved = claims(clients, ask(clients, IDENTITY, audience=AUDIENCE, format="full").text)
    assert proved["iss"] == "https://accounts.google.com"
    assert proved["exp"] == proved["iat"] + 3600 == int(clients.clock.now()) + 3600
    assert proved["google"] == {
        "compute_engine": {
            "instance_creation_timestamp": 1_790_000_000,
            "instance_id": str(instance.id),
            "instance_name": "one",
            "project_id": clients.name,
            "project_number": int(clients.project.number),
            "zone": ZONE,
        }
    }
    assert ask(clients, IDENTITY).status_code == 404


def test_a_forged_proof_is_found_out(clients: ProjectClients) -> None:
    clients.running("one")
    clients.project.signer = TokenSigner(signer().name)
    forged = ask(clients, IDENTITY, audience=AUDIENCE).text
    with pytest.raises(jwt.InvalidSignatureError):
        claims(clients, forged)
    clients.project.signer = None
    other = ask(clients, IDENTITY, audience="https://other.example").text
    with pytest.raises(jwt.InvalidAudienceError):
        claims(clients, other)
