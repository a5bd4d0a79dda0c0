"""What an instance can learn of itself, and prove."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jwt
import pytest

from tests.fakes.gcp import lifecycle
from tests.fakes.gcp.ground import HTTP, ZONE, Ground
from tests.fakes.gcp.identity import KEYS_PATH, TokenSigner, signer

FLAVOR = {"Metadata-Flavor": "Google"}
AUDIENCE = "https://castor.example"
UNTIMED: Any = {"verify_exp": False, "verify_iat": False}
IDENTITY = "instance/service-accounts/default/identity"


def ask(ground: Ground, path: str, **query: str) -> httpx.Response:
    url = f"{ground.fake.metadata_url(ground.name, 'one')}/computeMetadata/v1/{path}"
    return HTTP.get(url, params=query, headers=FLAVOR)


def test_an_instance_learns_who_it_is(ground: Ground) -> None:
    found = ground.running("one")
    assert ask(ground, "instance/id").text == str(found.id)
    assert ask(ground, "instance/name").text == "one"
    zone = f"projects/{ground.project.number}/zones/{ZONE}"
    assert ask(ground, "instance/zone").text == zone
    assert ask(ground, "instance/attributes/startup-script").text == "#!/bin/bash"
    assert ask(ground, "instance/attributes/").text == "startup-script\n"
    whole = ask(ground, "instance/attributes/", recursive="true").json()
    assert whole == {"startup-script": "#!/bin/bash"}
    assert ask(ground, "project/project-id").text == ground.name
    token = json.loads(ask(ground, "instance/service-accounts/default/token").text)
    assert token["token_type"] == "Bearer"
    for path in ("instance/attributes/none", "instance/nothing", "instance/name/"):
        assert ask(ground, path).status_code == 404


def test_only_who_means_it_is_answered(ground: Ground) -> None:
    ground.running("one")
    url = f"{ground.fake.metadata_url(ground.name, 'one')}/computeMetadata/v1/instance/id"
    assert HTTP.get(url).status_code == 403
    assert HTTP.get(url, headers={**FLAVOR, "X-Forwarded-For": "x"}).status_code == 403
    assert HTTP.get(url, headers=FLAVOR).headers["Metadata-Flavor"] == "Google"
    ground.wait(ground.delete("one"))
    assert HTTP.get(url, headers=FLAVOR).status_code == 404


def test_a_preemption_is_told_to_whoever_waits(ground: Ground) -> None:
    ground.running("one")
    seen = ask(ground, "instance/preempted")
    assert seen.text == "FALSE"
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(
            ask,
            ground,
            "instance/preempted",
            wait_for_change="true",
            last_etag=seen.headers["ETag"],
        )
        lifecycle.preempt(ground.project, "one")
        assert waiting.result(timeout=10).text == "TRUE"


def test_a_wait_without_a_change_ends(ground: Ground) -> None:
    ground.running("one")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(
            ask, ground, "instance/preempted", wait_for_change="true", timeout_sec="60"
        )
        while not waiting.done():
            ground.clock.advance(1.0)
        assert waiting.result().text == "FALSE"


def claims(ground: Ground, token: str) -> dict[str, Any]:
    """As whoever checks it by Google's keys would, at the project's time."""
    keys = jwt.PyJWKClient(ground.fake.url + KEYS_PATH)
    key = keys.get_signing_key_from_jwt(token)
    found: dict[str, Any] = jwt.decode(
        token, key, algorithms=["RS256"], audience=AUDIENCE, options=UNTIMED
    )
    return found


def test_an_instance_proves_who_it_is(ground: Ground) -> None:
    found = ground.running("one")
    told = claims(ground, ask(ground, IDENTITY, audience=AUDIENCE, format="full").text)
    assert told["iss"] == "https://accounts.google.com"
    assert told["exp"] == told["iat"] + 3600 == int(ground.clock.now()) + 3600
    assert told["google"] == {
        "compute_engine": {
            "instance_creation_timestamp": 1_790_000_000,
            "instance_id": str(found.id),
            "instance_name": "one",
            "project_id": ground.name,
            "project_number": int(ground.project.number),
            "zone": ZONE,
        }
    }
    assert ask(ground, IDENTITY).status_code == 404


def test_a_forged_proof_is_found_out(ground: Ground) -> None:
    ground.running("one")
    ground.project.signer = TokenSigner(signer().name)
    forged = ask(ground, IDENTITY, audience=AUDIENCE).text
    with pytest.raises(jwt.InvalidSignatureError):
        claims(ground, forged)
    ground.project.signer = None
    other = ask(ground, IDENTITY, audience="https://other.example").text
    with pytest.raises(jwt.InvalidAudienceError):
        claims(ground, other)
