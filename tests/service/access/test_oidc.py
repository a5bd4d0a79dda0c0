"""Client of an OpenID Connect provider: the code flow by real HTTP, and tokens that it refuses."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import NotAllowed, Unavailable
from autoscaler.service.access.oidc import LEEWAY_SECONDS, OidcProvider
from autoscaler.service.access.oidc_settings import OidcSettings
from tests.fakes.identity_provider import (
    CLIENT_ID,
    SECRET,
    FakeIdentityProvider,
    ec_key,
    identity_provider,
    public_key,
    rsa_key,
)

NOW_SECONDS = 1_800_000_000.0
REDIRECT_URI = "https://castor.example/login/callback"
ADA = "ada@example.org"
VERIFIER = "v" * 64


@pytest.fixture
def fake() -> Iterator[FakeIdentityProvider]:
    with identity_provider() as fake:
        fake.claims = {
            "iss": fake.issuer,
            "aud": CLIENT_ID,
            "sub": "1234",
            "exp": NOW_SECONDS + 300,
            "iat": NOW_SECONDS,
            "email": ADA,
            "email_verified": True,
        }
        yield fake


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW_SECONDS)


def client(
    fake: FakeIdentityProvider, clock: VirtualClock | None = None, **settings: Any
) -> OidcProvider:
    known = replace(OidcSettings(fake.issuer, CLIENT_ID), **settings)
    return OidcProvider(known, REDIRECT_URI, clock or VirtualClock(NOW_SECONDS))


def log_in(fake: FakeIdentityProvider, provider: OidcProvider, verifier: str = VERIFIER) -> str:
    """Return the name that the provider proves in a whole flow."""
    code = fake.log_in(provider.authorization_url("a-state", "a-nonce", VERIFIER))
    return provider.name(code, "a-nonce", verifier)


def test_a_person_logs_in_by_code_pkce_state_and_nonce(fake: FakeIdentityProvider) -> None:
    provider = client(fake)
    url = provider.authorization_url("a-state", "a-nonce", VERIFIER)
    query = parse_qs(urlsplit(url).query)
    assert url.startswith(f"{fake.issuer}/authorize?")
    assert (query["state"], query["nonce"]) == (["a-state"], ["a-nonce"])
    assert query["redirect_uri"] == [REDIRECT_URI]
    assert query["scope"] == ["openid email"]
    assert VERIFIER not in url
    assert log_in(fake, provider) == ADA
    path, form, headers = fake.requests[1]
    assert (path, form["client_id"], form["redirect_uri"]) == ("/token", CLIENT_ID, REDIRECT_URI)
    assert "Authorization" not in headers and "client_secret" not in form
    with pytest.raises(NotAllowed, match="refused the login: invalid_grant: no such code"):
        log_in(fake, provider, "another verifier")


@pytest.mark.parametrize("methods", [None, ["client_secret_basic"], ["client_secret_post"]])
def test_a_client_with_a_secret_proves_it(
    fake: FakeIdentityProvider, methods: list[str] | None
) -> None:
    if methods is not None:
        fake.metadata["token_endpoint_auth_methods_supported"] = methods
    assert log_in(fake, client(fake, client_secret=SECRET)) == ADA
    path, form, headers = fake.requests[1]
    assert path == "/token"
    if methods == ["client_secret_post"]:
        assert form["client_secret"] == SECRET and "Authorization" not in headers
    else:
        basic = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        assert headers["Authorization"] == f"Basic {basic}" and "client_secret" not in form


def test_metadata_and_keys_are_asked_for_once_and_new_keys_when_needed(
    fake: FakeIdentityProvider, clock: VirtualClock
) -> None:
    provider = client(fake, clock)
    for _ in range(3):
        assert log_in(fake, provider) == ADA
    assert fake.paths().count("/keys") == 1
    fake.key, fake.keys = "second", [public_key("second")]
    with pytest.raises(NotAllowed, match="no key of the provider fits"):
        log_in(fake, provider)
    clock.advance(10.0)
    assert log_in(fake, provider) == ADA
    fake.key = "third"
    for _ in range(3):
        with pytest.raises(NotAllowed, match="no key of the provider fits"):
            log_in(fake, provider)
    assert fake.paths().count("/keys") == 2, "tokens of strangers cause few requests"
    assert fake.paths().count("/.well-known/openid-configuration") == 1


def b64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def with_claims(**changes: Any) -> Callable[[FakeIdentityProvider], None]:
    """Return a change of the claims; a value of None removes a claim."""

    def spoil(fake: FakeIdentityProvider) -> None:
        fake.claims |= changes
        fake.claims = {name: value for name, value in fake.claims.items() if value is not None}

    return spoil


def without_signature(fake: FakeIdentityProvider) -> None:
    claims = {**fake.claims, "nonce": "a-nonce"}
    fake.id_token = jwt.encode(claims, None, algorithm="none")


def with_stripped_signature(fake: FakeIdentityProvider) -> None:
    fake.id_token = fake.sign({**fake.claims, "nonce": "a-nonce"}).rpartition(".")[0] + "."


def signed_by_hmac(fake: FakeIdentityProvider, algorithm: str, secret: bytes) -> str:
    """Return an ID token with an HMAC, and the name of another algorithm in its header."""
    header = b64({"alg": algorithm, "kid": "first", "typ": "JWT"})
    signed = f"{header}.{b64({**fake.claims, 'nonce': 'a-nonce'})}"
    signature = hmac.digest(secret, signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def signed_with_the_public_key(fake: FakeIdentityProvider) -> None:
    """Sign with HS256 and the public key as the secret: the confusion of algorithms."""
    key = rsa_key("first").public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    fake.id_token = signed_by_hmac(fake, "HS256", pem)


def signed_with_a_published_secret(fake: FakeIdentityProvider) -> None:
    secret = base64.urlsafe_b64encode(b"s" * 40).rstrip(b"=").decode()
    fake.keys = [{"kty": "oct", "k": secret, "kid": "first", "alg": "HS256"}]
    fake.id_token = signed_by_hmac(fake, "RS256", b"s" * 40)


def signed_by_another(fake: FakeIdentityProvider) -> None:
    claims = {**fake.claims, "nonce": "a-nonce"}
    fake.id_token = jwt.encode(
        claims, rsa_key("mallory"), algorithm="RS256", headers={"kid": "first"}
    )


def signed_by_an_unknown_key(fake: FakeIdentityProvider) -> None:
    fake.key = "mallory"


def signed_on_another_curve(fake: FakeIdentityProvider) -> None:
    claims = {**fake.claims, "nonce": "a-nonce"}
    fake.id_token = jwt.encode(claims, ec_key("x"), algorithm="ES256", headers={"kid": "first"})


def with_the_key_in_the_token(fake: FakeIdentityProvider) -> None:
    claims = {**fake.claims, "nonce": "a-nonce"}
    header = {"kid": "mallory", "jwk": public_key("mallory"), "jku": f"{fake.issuer}/evil"}
    fake.id_token = jwt.encode(claims, rsa_key("mallory"), algorithm="RS256", headers=header)


def of_a_key_for_encryption(fake: FakeIdentityProvider) -> None:
    fake.keys = [{**public_key("first"), "use": "enc"}]


def changed_after_the_signature(fake: FakeIdentityProvider) -> None:
    header, _, signature = fake.sign({**fake.claims, "nonce": "a-nonce"}).split(".")
    changed = {**fake.claims, "nonce": "a-nonce", "email": "root@example.org"}
    fake.id_token = f"{header}.{b64(changed)}.{signature}"


REFUSED: dict[str, tuple[Callable[[FakeIdentityProvider], None], str]] = {
    "of another login": (with_claims(nonce="another"), "it is of another login"),
    "for another client": (with_claims(aud="another"), "[Aa]udience"),
    "for no client": (with_claims(aud=None), '"aud" claim'),
    "of another issuer": (with_claims(iss="https://evil.example"), "[Ii]ssuer"),
    "of an issuer with a slash": (with_claims(iss="http://127.0.0.1/"), "[Ii]ssuer"),
    "for several, of which one asked": (with_claims(aud=[CLIENT_ID, "x"]), "another client"),
    "asked for by another": (with_claims(azp="another"), "it is for another client"),
    "expired": (with_claims(exp=NOW_SECONDS - LEEWAY_SECONDS), "it has expired"),
    "without an end": (with_claims(exp=None), '"exp" claim'),
    "with a text as its end": (with_claims(exp="tomorrow"), "its times are no times"),
    "with a huge end": (with_claims(exp=10**400), "its times are no times"),
    "with a boolean end": (with_claims(exp=True), "its times are no times"),
    "of the future": (with_claims(iat=NOW_SECONDS + LEEWAY_SECONDS + 1), "it is of the future"),
    "without a time": (with_claims(iat=None), '"iat" claim'),
    "of nobody": (with_claims(sub=None), '"sub" claim'),
    "with alg none": (without_signature, 'its signature is "none"'),
    "with its signature stripped": (with_stripped_signature, "[Ss]ignature"),
    "with HS256 and the public key": (signed_with_the_public_key, 'its signature is "HS256"'),
    "with a secret among the keys": (signed_with_a_published_secret, "no key of the provider"),
    "by another key of that id": (signed_by_another, "[Ss]ignature"),
    "by an unknown key": (signed_by_an_unknown_key, "no key of the provider fits"),
    "by a key of another kind": (signed_on_another_curve, "no key of the provider fits"),
    "by the key that it brings": (with_the_key_in_the_token, "no key of the provider fits"),
    "by a key for encryption": (of_a_key_for_encryption, "no key of the provider fits"),
    "changed": (changed_after_the_signature, "[Ss]ignature"),
    "no token": (lambda fake: setattr(fake, "id_token", "x"), "can't be used"),
    "of an address not verified": (with_claims(email_verified=False), "not verified the address"),
    "of an address perhaps verified": (with_claims(email_verified="true"), "not verified"),
    "of an address said nothing of": (with_claims(email_verified=None), "not verified"),
    "without an address": (with_claims(email=None), "says no email"),
    "with a list of addresses": (with_claims(email=[ADA]), "says no email"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_an_id_token_is_refused(fake: FakeIdentityProvider, kind: str) -> None:
    spoil, reason = REFUSED[kind]
    provider = client(fake)
    assert log_in(fake, provider) == ADA
    spoil(fake)
    with pytest.raises(NotAllowed, match=reason):
        log_in(fake, client(fake))


def test_clocks_may_differ_by_a_minute(fake: FakeIdentityProvider) -> None:
    fake.claims |= {"exp": NOW_SECONDS - LEEWAY_SECONDS + 1, "iat": NOW_SECONDS + LEEWAY_SECONDS}
    assert log_in(fake, client(fake)) == ADA


def test_other_audiences_are_accepted_with_this_client_as_the_asking_one(
    fake: FakeIdentityProvider,
) -> None:
    fake.claims |= {"aud": [CLIENT_ID, "other"], "azp": CLIENT_ID}
    assert log_in(fake, client(fake)) == ADA


def test_a_key_without_an_algorithm_and_a_token_without_a_key_s_id_are_accepted(
    fake: FakeIdentityProvider,
) -> None:
    key = public_key("first")
    del key["alg"]
    fake.keys = [key]
    fake.id_token = jwt.encode(
        {**fake.claims, "nonce": "a-nonce"}, rsa_key("first"), algorithm="RS256"
    )
    assert log_in(fake, client(fake)) == ADA
    fake.keys = [key, {**key, "kid": "another"}]
    with pytest.raises(NotAllowed, match="no key of the provider fits"):
        log_in(fake, client(fake))


def test_another_claim_names_a_person(fake: FakeIdentityProvider) -> None:
    fake.claims |= {"preferred_username": "ada", "email_verified": False}
    provider = client(fake, claim="preferred_username")
    assert "scope=openid+profile+email" in provider.authorization_url("s", "n", VERIFIER)
    assert log_in(fake, provider) == "ada"


def test_a_claim_that_the_id_token_lacks_is_asked_for(fake: FakeIdentityProvider) -> None:
    fake.metadata["userinfo_endpoint"] = f"{fake.issuer}/userinfo"
    fake.userinfo = {"sub": "1234", "email": ADA, "email_verified": True}
    assert log_in(fake, client(fake)) == ADA
    assert "/userinfo" not in fake.paths()
    del fake.claims["email"], fake.claims["email_verified"]
    assert log_in(fake, client(fake)) == ADA
    assert fake.requests[-1][2]["Authorization"] == "Bearer access"
    fake.userinfo["email_verified"] = False
    with pytest.raises(NotAllowed, match="not verified"):
        log_in(fake, client(fake))
    fake.userinfo |= {"sub": "another", "email_verified": True}
    with pytest.raises(NotAllowed, match="userinfo is of another person"):
        log_in(fake, client(fake))


BROKEN = {
    "an error": (503, b"busy"),
    "no JSON": (200, b"<html>"),
    "a list": (200, b"[]"),
    "deep JSON": (200, b"[" * 100_000),
    "a redirect": (302, b""),
}


@pytest.mark.parametrize("answer", BROKEN)
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token"])
def test_a_provider_that_answers_otherwise_is_named(
    fake: FakeIdentityProvider, path: str, answer: str
) -> None:
    fake.pages[path] = BROKEN[answer]
    with pytest.raises(Unavailable, match=f"identity provider {fake.issuer} can't be used now: "):
        log_in(fake, client(fake))


def test_a_provider_that_is_away_is_asked_again_after_some_seconds(
    fake: FakeIdentityProvider, clock: VirtualClock
) -> None:
    provider = client(fake, clock)
    fake.pages["/.well-known/openid-configuration"] = 503, b""
    with pytest.raises(Unavailable, match="503"):
        log_in(fake, provider)
    fake.pages.clear()
    with pytest.raises(Unavailable, match="did not answer a moment ago"):
        log_in(fake, provider)
    assert len(fake.requests) == 1
    clock.advance(5.0)
    assert log_in(fake, provider) == ADA


def test_nobody_listens_at_the_issuer() -> None:
    provider = client(FakeIdentityProvider("http://127.0.0.1:9"))
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9 can't be used now"):
        provider.authorization_url("s", "n", VERIFIER)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": "https://other.example"}, "calls itself .*other.example.*--oidc-issuer"),
        ({"issuer": None}, "calls itself"),
        ({"token_endpoint": "http://provider.example/token"}, "token_endpoint is no HTTPS URL"),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri is no HTTPS URL"),
        ({"authorization_endpoint": None}, "authorization_endpoint is no HTTPS URL"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "is no HTTPS URL"),
        ({"userinfo_endpoint": "http://[bad"}, "userinfo_endpoint is no HTTPS URL"),
    ],
)
def test_metadata_of_another_issuer_or_without_https_is_refused(
    fake: FakeIdentityProvider, changes: dict[str, Any], reason: str
) -> None:
    fake.metadata |= changes
    with pytest.raises(Unavailable, match=reason):
        log_in(fake, client(fake))


def test_keys_of_no_use_are_the_provider_s_failure(fake: FakeIdentityProvider) -> None:
    fake.keys = []
    with pytest.raises(Unavailable, match="its keys can't be used"):
        log_in(fake, client(fake))
