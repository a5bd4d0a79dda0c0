"""Identity tokens: whose signature counts, and for whom."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.domain.errors import NotAllowed, Unavailable
from providers.gcp.provider import GcpProvider
from providers.gcp.session import Session
from tests.conformance.provider import launch_running
from tests.fakes.gcp.identity import TokenSigner, signer
from tests.providers.gcp.cloud import GcpWorld, ServiceAccount, error_of, name_of


def token(world: GcpWorld, instance_id: str, by: TokenSigner | None = None, **claims: Any) -> str:
    instance = world.project.instance(name_of(instance_id))
    return (by or signer()).token(world.project, instance, "castor-test", **claims)


@pytest.fixture
def provider(world: GcpWorld) -> GcpProvider:
    return world.connect()


@pytest.fixture
def launched(world: GcpWorld, provider: GcpProvider) -> str:
    return launch_running(world, provider, "1").id


def test_a_token_is_of_the_instance_that_it_names(
    world: GcpWorld, provider: GcpProvider, launched: str
) -> None:
    (seen,) = provider.instances()
    found = provider.identity.verify(token(world, launched) + "\n")
    assert found.instance == launched
    assert found.started_seconds == pytest.approx(seen.launched_seconds, abs=1.0)


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "castor-other"}, "is for 'castor-other'; the settings have audience castor-test"),
        ({"iss": "https://example.com"}, "not by Google"),
        ({"exp": 1}, "has expired"),
        ({"iat": 4_000_000_000}, "from the future"),
        ({"exp": None}, "lacks a required field"),
        ({"google": {}}, "request format=full"),
        ({"google": None}, "request format=full"),
    ],
)
def test_a_token_that_says_otherwise_is_refused(
    world: GcpWorld, provider: GcpProvider, launched: str, claims: dict[str, Any], said: str
) -> None:
    with pytest.raises(NotAllowed, match=said):
        provider.identity.verify(token(world, launched, **claims))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("project_id", "other-project", "of project other-project"),
        ("zone", "asia-east1-a", "settings"),
    ],
)
def test_a_token_of_elsewhere_is_refused(
    world: GcpWorld, provider: GcpProvider, launched: str, field: str, value: str, said: str
) -> None:
    told = {
        "instance_creation_timestamp": 1_790_000_000,
        "instance_name": name_of(launched),
        "project_id": world.name,
        "zone": "us-central1-a",
        field: value,
    }
    with pytest.raises(NotAllowed, match=said):
        provider.identity.verify(token(world, launched, google={"compute_engine": told}))


def test_what_google_has_not_signed_is_refused(
    world: GcpWorld, provider: GcpProvider, launched: str
) -> None:
    for forger in (TokenSigner("key-of-the-fake"), TokenSigner("another-key")):
        with pytest.raises(NotAllowed):
            provider.identity.verify(token(world, launched, by=forger))


def test_a_token_signed_with_a_shared_secret_is_refused(
    world: GcpWorld, provider: GcpProvider, launched: str
) -> None:
    """Refuse the known attack of a public key as shared secret."""
    import jwt

    claims = jwt.decode(token(world, launched), options={"verify_signature": False})
    headers = {"kid": "key-of-the-fake"}
    forged = jwt.encode(claims, "s" * 32, algorithm="HS256", headers=headers)
    with pytest.raises(NotAllowed):
        provider.identity.verify(forged)


@pytest.mark.parametrize("proof", ["", "a.b.c", "x" * 20_000, "{}"])
def test_what_is_no_token_is_refused_in_one_line(provider: GcpProvider, proof: str) -> None:
    with pytest.raises(NotAllowed) as caught:
        provider.identity.verify(proof)
    assert "\n" not in str(caught.value)


def test_without_googles_keys_nothing_is_concluded(world: GcpWorld, launched: str) -> None:
    proof = token(world, launched)
    away = Session(ServiceAccount(world.name), "http://127.0.0.1:9")
    provider = GcpProvider(
        world.settings,
        "deployment-a",
        world.clock,
        away,
        world.connect()._records,
    )
    assert isinstance(error_of(lambda: provider.identity.verify(proof)), Unavailable)
