"""Verification of Compute Engine identity tokens and of Google's signatures.

An instance reads its token from its metadata service. The token is a JSON Web Token in format
`full`, for one audience. A key of Google's signs the token with RSA and SHA-256. The keys are
public and change every few days: https://www.googleapis.com/oauth2/v3/certs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jwt

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotAllowed, Unavailable
from providers.cloud.facts import TTLValue
from providers.gcp.errors import Call
from providers.gcp.replies import instance_id
from providers.gcp.rest import send
from providers.gcp.session import Session
from providers.gcp.settings import CallTimeouts, GcpSettings, region_of
from providers.identity import IdentityVerifier, InstanceIdentity

_ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
_MAX_CHARACTERS: Final = 16_384  # Google's tokens have 1,200
_CLOCK_TOLERANCE_SECONDS: Final = 300.0
_Keys = Mapping[str, Any]


class TokenVerifier(IdentityVerifier):
    """Verifier of identity tokens of the settings' project and audience.

    The keys are fetched again for an unknown key, at most once every `CallTimeouts.retry_seconds`.
    """

    def __init__(
        self, settings: GcpSettings, session: Session, patience: CallTimeouts, clock: Clock
    ) -> None:
        self._project = settings.project
        self._audience = settings.whom
        self._regions = frozenset(settings.regions)
        self._session = session
        self._answer_seconds = patience.answer_seconds
        self._clock = clock
        retry_seconds = patience.retry_seconds
        self._cached_keys = TTLValue(
            self._fetch_keys, patience.facts_seconds, retry_seconds, clock
        )
        self._fresh_keys = TTLValue(self._fetch_keys, retry_seconds, retry_seconds, clock)

    def verify(self, proof: str) -> InstanceIdentity:
        """Return the instance that a token identifies.

        Raises:
            NotAllowed: the token is invalid, is not signed by Google, has expired, or is for
                another project, region or audience.
            Unavailable: Google's keys can't be fetched now.
        """
        token = "".join(proof.split())
        claims = self._verified_claims(token)
        self._check_times(claims)
        if claims.get("iss") not in _ISSUERS:
            raise NotAllowed(
                f"the identity token is issued by {claims.get('iss')!r}, not by Google"
            )
        if claims.get("aud") != self._audience:
            raise NotAllowed(
                f"the identity token is for {claims.get('aud')!r}; the settings have audience "
                f"{self._audience}"
            )
        return self._instance(claims)

    def _verified_claims(self, token: str) -> Mapping[str, Any]:
        try:
            if len(token) > _MAX_CHARACTERS:
                raise jwt.InvalidTokenError(
                    f"it has {len(token)} characters, more than {_MAX_CHARACTERS}"
                )
            name = str(jwt.get_unverified_header(token).get("kid", ""))
            key = self._key(name)
            if key is None:
                raise NotAllowed("the identity token is not signed with a key of Google")
            options: Any = {"verify_aud": False, "verify_exp": False, "verify_iat": False}
            options |= {"verify_nbf": False, "verify_iss": False}
            claims: Mapping[str, Any] = jwt.decode(
                token, key, algorithms=["RS256"], options=options
            )
        except jwt.PyJWTError as error:
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise NotAllowed(f"the identity token is not valid: {reason}") from error
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        try:
            from_seconds, until_seconds = float(claims["iat"]), float(claims["exp"])
        except (KeyError, TypeError, ValueError) as error:
            raise NotAllowed(f"the identity token lacks a required field: {error}") from error
        now_seconds = self._clock.now()
        if now_seconds > until_seconds + _CLOCK_TOLERANCE_SECONDS:
            raise NotAllowed("the identity token has expired: start another instance")
        if now_seconds < from_seconds - _CLOCK_TOLERANCE_SECONDS:
            raise NotAllowed(
                "the identity token is from the future: check the clock of the controller's host"
            )

    def _instance(self, claims: Mapping[str, Any]) -> InstanceIdentity:
        try:
            fields = claims["google"]["compute_engine"]
            zone, project = str(fields["zone"]), str(fields["project_id"])
            identity = InstanceIdentity(
                instance_id(zone, str(fields["instance_name"])),
                float(fields["instance_creation_timestamp"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NotAllowed(
                f"the identity token lacks a required field: {error}: request format=full"
            ) from error
        if project != self._project:
            raise NotAllowed(
                f"the identity token is of project {project}; the settings have project "
                f"{self._project}"
            )
        if region_of(zone) not in self._regions:
            raise NotAllowed(
                f"the identity token is of {zone}, whose region the settings do not have"
            )
        return identity

    def _key(self, name: str) -> Any:
        key = self._cached_keys.get().get(name)
        return key if key is not None else self._fresh_keys.get().get(name)

    def _fetch_keys(self) -> _Keys:
        """Return Google's public keys by their id.

        Raises:
            ProviderError: the keys can't be fetched.
        """
        call = Call(self._project, "oauth2 certs")
        url = f"{self._session.base('www')}/oauth2/v3/certs"
        reply = send(self._session, call, "GET", url, self._answer_seconds)
        try:
            return {str(key.key_id): key.key for key in jwt.PyJWKSet.from_dict(dict(reply)).keys}
        except (jwt.PyJWTError, AttributeError, TypeError) as error:
            raise Unavailable(f"{call}: the reply can't be read: {error}") from error
