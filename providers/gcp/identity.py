"""The identity token of an instance of Compute Engine, and Google's signature under it.

An instance gets it from its metadata service: a JSON Web Token in format `full`, signed with RSA
and SHA-256 by a key of Google's, for one audience. The keys are public and change every few days:
https://www.googleapis.com/oauth2/v3/certs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jwt

from autoscaler.clock import Clock
from autoscaler.domain.errors import NotAllowed, Unavailable
from providers.cloud.facts import Remembered
from providers.gcp.errors import Call
from providers.gcp.replies import instance_id
from providers.gcp.rest import send
from providers.gcp.session import Session
from providers.gcp.settings import GcpSettings, Patience, region_of
from providers.identity import IdentityVerifier, InstanceIdentity

_ISSUERS: Final = ("https://accounts.google.com", "accounts.google.com")
_MOST_CHARACTERS: Final = 16_384  # Google's have 1,200
_CLOCK_DIFFERENCE_SECONDS: Final = 300.0
_Keys = Mapping[str, Any]


class TokenVerifier(IdentityVerifier):
    """Knows Google's keys, and whom tokens of the settings' project must be for.

    A key that is not known is asked for, at most every `Patience.retry_seconds`.
    """

    def __init__(
        self, settings: GcpSettings, session: Session, patience: Patience, clock: Clock
    ) -> None:
        self._project = settings.project
        self._audience = settings.whom
        self._regions = frozenset(settings.regions)
        self._session = session
        self._answer_seconds = patience.answer_seconds
        self._clock = clock
        retry_seconds = patience.retry_seconds
        self._lasting = Remembered(self._ask, patience.facts_seconds, retry_seconds, clock)
        self._fresh = Remembered(self._ask, retry_seconds, retry_seconds, clock)

    def verify(self, proof: str) -> InstanceIdentity:
        """The instance that a token is of.

        Raises:
            NotAllowed: it is no token, Google did not sign it, it has expired, or it is of
                another project or region, or for another audience.
            Unavailable: Google's keys can't be had now.
        """
        token = "".join(proof.split())
        claims = self._signed(token)
        self._check_times(claims)
        if claims.get("iss") not in _ISSUERS:
            raise NotAllowed(f"the identity token is of {claims.get('iss')!r}, not of Google")
        if claims.get("aud") != self._audience:
            raise NotAllowed(
                f"the identity token is for {claims.get('aud')!r}, and audience is "
                f"{self._audience}"
            )
        return self._instance(claims)

    def _signed(self, token: str) -> Mapping[str, Any]:
        try:
            if len(token) > _MOST_CHARACTERS:
                raise jwt.InvalidTokenError(f"it has {len(token)} characters")
            name = str(jwt.get_unverified_header(token).get("kid", ""))
            key = self._key(name)
            if key is None:
                raise NotAllowed("the identity token is not signed with a key of Google's")
            options: Any = {"verify_aud": False, "verify_exp": False, "verify_iat": False}
            options |= {"verify_nbf": False, "verify_iss": False}
            found: Mapping[str, Any] = jwt.decode(
                token, key, algorithms=["RS256"], options=options
            )
        except jwt.PyJWTError as error:
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise NotAllowed(f"the identity token does not hold: {reason}") from error
        return found

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        try:
            from_seconds, until_seconds = float(claims["iat"]), float(claims["exp"])
        except (KeyError, TypeError, ValueError) as error:
            raise NotAllowed(f"the identity token lacks what it must have: {error}") from error
        now_seconds = self._clock.now()
        if now_seconds > until_seconds + _CLOCK_DIFFERENCE_SECONDS:
            raise NotAllowed("the identity token has expired: start the instance anew")
        if now_seconds < from_seconds - _CLOCK_DIFFERENCE_SECONDS:
            raise NotAllowed(
                "the identity token is from the future: check the clock of the controller's host"
            )

    def _instance(self, claims: Mapping[str, Any]) -> InstanceIdentity:
        try:
            told = claims["google"]["compute_engine"]
            zone, project = str(told["zone"]), str(told["project_id"])
            identity = InstanceIdentity(
                instance_id(zone, str(told["instance_name"])),
                float(told["instance_creation_timestamp"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise NotAllowed(
                f"the identity token lacks what it must have: {error}: ask for format=full"
            ) from error
        if project != self._project:
            raise NotAllowed(
                f"the identity token is of project {project}, and project is {self._project}"
            )
        if region_of(zone) not in self._regions:
            raise NotAllowed(f"the identity token is of {zone}, where no pool is")
        return identity

    def _key(self, name: str) -> Any:
        found = self._lasting.get().get(name)
        return found if found is not None else self._fresh.get().get(name)

    def _ask(self) -> _Keys:
        """Google's keys by their name.

        Raises:
            ProviderError: they can't be had.
        """
        call = Call(self._project, "oauth2 certs")
        url = f"{self._session.base('www')}/oauth2/v3/certs"
        told = send(self._session, call, "GET", url, self._answer_seconds)
        try:
            return {str(one.key_id): one.key for one in jwt.PyJWKSet.from_dict(dict(told)).keys}
        except (jwt.PyJWTError, AttributeError, TypeError) as error:
            raise Unavailable(f"{call}: the reply can't be read: {error}") from error
