"""OpenID Connect provider: authorization code flow with PKCE, and verification of ID tokens.

Only a controller with an identity provider imports this module, which needs the extra [oidc].
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore, Lock
from typing import Any, Final, NoReturn

import httpx2
import jwt
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import OAuth2Client

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotAllowed, Unavailable
from autoscaler.domain.rules import LATEST_SECONDS
from autoscaler.domain.text import printable, quoted
from autoscaler.service.access.oidc_settings import EMAIL, OidcSettings
from autoscaler.wire.connection import is_private

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures of ID tokens that are accepted. With a symmetric one, who verifies could sign."""

LEEWAY_SECONDS: Final = 60.0
"""Maximum difference between the clocks of the provider and of the controller's host."""

_TIMEOUT_SECONDS: Final = 10.0
# A provider that hangs holds up so many threads of the controller, and others for a moment.
_CALLS_AT_ONCE: Final = 4
_TURN_SECONDS: Final = 1.0
_METADATA_SECONDS: Final = 3600.0
_KEYS_SECONDS: Final = 10.0
_FAILED_SECONDS: Final = 5.0
_DISCOVERY: Final = "/.well-known/openid-configuration"
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_BASIC, _POST, _NO_SECRET = "client_secret_basic", "client_secret_post", "none"
_SECONDS: Final = ("exp", "iat")
_NO_ANSWER: Final = (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError)

Claims = Mapping[str, Any]


@dataclass(slots=True)
class _Remembered:
    """Document of the provider, with the time of its request by the monotonic clock."""

    document: Claims
    at_seconds: float


class OidcProvider:
    """An OpenID Connect provider. Threads may share this.

    The provider is first asked at the first login, so that its failures delay no start.
    """

    def __init__(self, settings: OidcSettings, redirect_uri: str, clock: Clock) -> None:
        self._settings = settings
        self._redirect_uri = redirect_uri
        self._clock = clock
        self._trust = httpx2.create_ssl_context()
        self._calls = BoundedSemaphore(_CALLS_AT_ONCE)
        self._lock = Lock()
        self._metadata: _Remembered | None = None
        self._keys: _Remembered | None = None
        self._failed_seconds = float("-inf")

    def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        """Return the provider's page at which a person logs in.

        Raises:
            Unavailable: the provider does not answer.
        """
        with self._answers(), self._client(_NO_SECRET) as client:
            url, _ = client.create_authorization_url(
                self._configuration()["authorization_endpoint"],
                state=state,
                nonce=nonce,
                code_verifier=verifier,
            )
        return str(url)

    def name(self, code: str, nonce: str, verifier: str) -> str:
        """Return the value of the claim that names a person, for the `code` of an answer.

        Raises:
            NotAllowed: the code, the ID token or the claim can't be used.
            Unavailable: the provider does not answer.
        """
        with self._answers():
            metadata = self._configuration()
            with self._client(self._method(metadata)) as client:
                token = client.fetch_token(
                    metadata["token_endpoint"],
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=verifier,
                )
                claims = self._claims(token.get("id_token"), nonce)
                if self._settings.claim not in claims and "userinfo_endpoint" in metadata:
                    claims = {**claims, **_userinfo(client, metadata, token, claims)}
        return _named(claims, self._settings.claim)

    def _claims(self, id_token: object, nonce: str) -> Claims:
        """Return the claims of an ID token that this provider issued for a login of `nonce`.

        Raises:
            NotAllowed: it is no such token, or no longer valid.
            Unavailable: the provider's keys can't be fetched.
        """
        if not isinstance(id_token, str):
            raise NotAllowed("the identity provider sent no ID token: its scopes must have openid")
        try:
            claims: Claims = jwt.decode(
                id_token,
                self._key(jwt.get_unverified_header(id_token)),
                algorithms=list(ALGORITHMS),
                audience=self._settings.client_id,
                issuer=self._settings.issuer,
                options={
                    "require": ["iss", "aud", "sub", *_SECONDS],
                    # `_require_current` checks the times, by this controller's clock.
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        except jwt.PyJWTError as error:
            _refuse(str(error))
        self._require_current(claims)
        self._require_for_client(claims, nonce)
        return claims

    def _require_current(self, claims: Claims) -> None:
        times = [claims[name] for name in _SECONDS]
        if not all(type(time) in (int, float) and 0 < time < LATEST_SECONDS for time in times):
            _refuse("its times are no times")
        expires_seconds, issued_seconds = times
        now_seconds = self._clock.now()
        if expires_seconds <= now_seconds - LEEWAY_SECONDS:
            _refuse("it has expired; check the clock of the controller's host")
        if issued_seconds > now_seconds + LEEWAY_SECONDS:
            _refuse("it is of the future; check the clock of the controller's host")

    def _require_for_client(self, claims: Claims, nonce: str) -> None:
        """Check that an ID token is for this client, and for the login of `nonce`."""
        audience, client = claims["aud"], self._settings.client_id
        is_for_several = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if is_for_several else client) != client:
            _refuse("it is for another client")
        presented = str(claims.get("nonce")).encode(errors="replace")
        if not hmac.compare_digest(presented, nonce.encode()):
            _refuse("it is of another login")

    def _key(self, header: Claims) -> jwt.PyJWK:
        """Return the key of the provider that the header of an ID token names.

        Raises:
            NotAllowed: there is none, or the algorithm is not accepted.
            Unavailable: the provider does not answer.
        """
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            _refuse(f"its signature is {quoted(algorithm)}, not one of {', '.join(ALGORITHMS)}")
        key = self._fitting(header, self._key_set(_METADATA_SECONDS))
        key = key or self._fitting(header, self._key_set(_KEYS_SECONDS))  # the keys may be new
        return key or _refuse("no key of the provider fits it")

    def _fitting(self, header: Claims, keys: jwt.PyJWKSet) -> jwt.PyJWK | None:
        fitting = [
            key
            for key in keys.keys
            if key.algorithm_name == header["alg"]
            and header.get("kid") in (None, key.key_id)
            and key.public_key_use in (None, "sig")
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _key_set(self, most_seconds: float) -> jwt.PyJWKSet:
        """Return the provider's keys, asked for at most `most_seconds` ago."""
        url = self._configuration()["jwks_uri"]
        with self._lock:
            if not self._is_fresh(self._keys, most_seconds):
                self._keys = self._asked(url)
            assert self._keys is not None, "it was just asked for"
            document = self._keys.document
        try:
            return jwt.PyJWKSet.from_dict(dict(document))
        except jwt.PyJWTError as error:
            raise self._unusable(f"its keys can't be used: {error}") from None

    def _configuration(self) -> Claims:
        """Return the provider's metadata.

        Raises:
            Unavailable: the provider does not answer, or not with the metadata of the issuer.
        """
        with self._lock:
            if not self._is_fresh(self._metadata, _METADATA_SECONDS):
                metadata = self._asked(f"{self._settings.issuer.rstrip('/')}{_DISCOVERY}")
                self._require_usable(metadata.document)
                self._metadata = metadata
            assert self._metadata is not None, "it was just asked for"
            return self._metadata.document

    def _require_usable(self, metadata: Claims) -> None:
        issuer = metadata.get("issuer")
        if issuer != self._settings.issuer:
            raise self._unusable(f"it calls itself {quoted(issuer)}: write this as --oidc-issuer")
        named = (*_ENDPOINTS, *(["userinfo_endpoint"] if "userinfo_endpoint" in metadata else []))
        for endpoint in named:
            if not is_private(metadata.get(endpoint)):
                raise self._unusable(f"its {endpoint} is no HTTPS URL")

    def _is_fresh(self, remembered: _Remembered | None, most_seconds: float) -> bool:
        now_seconds = self._clock.monotonic()
        return remembered is not None and now_seconds - remembered.at_seconds < most_seconds

    def _asked(self, url: str) -> _Remembered:
        """Return a JSON document of the provider.

        Raises:
            Unavailable: the provider did not answer a moment ago.
        HTTPError, ValueError: it does not answer, or not with a JSON object.
        """
        now_seconds = self._clock.monotonic()
        if now_seconds - self._failed_seconds < _FAILED_SECONDS:
            raise self._unusable("it did not answer a moment ago")
        try:
            with self._client(_NO_SECRET) as client:
                return _Remembered(_document(client, url), now_seconds)
        except _NO_ANSWER:
            self._failed_seconds = self._clock.monotonic()
            raise

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Translate failures of calls in this context, which few threads enter at once.

        Raises:
            NotAllowed: the provider refused a call.
            Unavailable: the provider did not answer, or too many calls wait for it.
        """
        if not self._calls.acquire(timeout=_TURN_SECONDS):
            raise self._unusable("other logins wait for its answers")
        try:
            yield
        except OAuthError as error:
            raise NotAllowed(
                f"the identity provider refused the login: {printable(str(error))}: check "
                "--oidc-client-id and its secret, and run castor login again"
            ) from None
        except _NO_ANSWER as error:
            raise self._unusable(str(error) or type(error).__name__) from None
        finally:
            self._calls.release()

    def _unusable(self, reason: str) -> Unavailable:
        return Unavailable(
            f"the identity provider {self._settings.issuer} can't be used now: "
            f"{printable(reason)}: try again in some seconds, or ask the controller's admin"
        )

    def _client(self, method: str) -> OAuth2Client:
        settings = self._settings
        return OAuth2Client(
            settings.client_id,
            settings.client_secret,
            token_endpoint_auth_method=method,
            scope="openid email" if settings.claim == EMAIL else "openid profile email",
            redirect_uri=self._redirect_uri,
            code_challenge_method="S256",
            timeout=_TIMEOUT_SECONDS,
            verify=self._trust,
        )

    def _method(self, metadata: Claims) -> str:
        """Return how this client authenticates at the provider's token endpoint."""
        if self._settings.client_secret is None:
            return _NO_SECRET
        methods = metadata.get("token_endpoint_auth_methods_supported") or [_BASIC]
        return _POST if _BASIC not in methods and _POST in methods else _BASIC


def _document(client: OAuth2Client, url: str, **options: Any) -> Claims:
    """Return the JSON object at a URL. `ValueError`: it is none; `HTTPError`: no answer."""
    response = client.request("GET", url, withhold_token=True, **options)
    response.raise_for_status()
    document = response.json()
    if not isinstance(document, dict):
        raise ValueError(f"{url} is no JSON object")
    return document


def _userinfo(client: OAuth2Client, metadata: Claims, token: Claims, claims: Claims) -> Claims:
    """Return the claims of the provider's userinfo about the person of an ID token.

    Raises:
        NotAllowed: they are about another person.
    """
    headers = {"Authorization": f"Bearer {token.get('access_token')}"}
    userinfo = _document(client, metadata["userinfo_endpoint"], headers=headers)
    if userinfo.get("sub") != claims["sub"]:
        _refuse("the provider's userinfo is of another person")
    return {name: value for name, value in userinfo.items() if name not in claims}


def _named(claims: Claims, claim: str) -> str:
    """Return the value of the claim that names a person.

    Raises:
        NotAllowed: there is none, or it is an e-mail address that is not verified.
    """
    value = claims.get(claim)
    if not isinstance(value, str) or not value:
        raise NotAllowed(
            f"the identity provider says no {claim} of this person: let it add the claim to ID "
            "tokens, or choose another --oidc-claim"
        )
    if claim == EMAIL and claims.get("email_verified") is not True:
        raise NotAllowed(
            f"the identity provider has not verified the address {quoted(value)}: verify it there"
        )
    return value


def _refuse(reason: str) -> NoReturn:
    """Raise the error for an ID token that can't be used."""
    raise NotAllowed(f"the identity provider's ID token can't be used: {printable(reason)}")
