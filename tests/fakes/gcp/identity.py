"""Identity tokens of the fake Google Cloud's instances, and the keys to verify them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tests.fakes.gcp.http_messages import Answer, Request, json_answer
from tests.fakes.gcp.project import Instance, Project

ISSUER: Final = "https://accounts.google.com"
KEYS_PATH: Final = "/oauth2/v3/certs"
_VALID_SECONDS: Final = 3600


@cache
def signer() -> TokenSigner:
    """Return the signer of all instances' tokens."""
    return TokenSigner("key-of-the-fake")


class TokenSigner:
    """Signer with one key; another signer of the same `name` is a forger."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, project: Project, instance: Instance, audience: str, **changes: Any) -> str:
        """Return the full token of an instance, with `changes` of its claims."""
        now = int(project.clock.now())
        email = service_account(project, instance)
        claims = {
            "aud": audience,
            "azp": "100000000000000000001",
            "email": email,
            "email_verified": True,
            "exp": now + _VALID_SECONDS,
            "google": {
                "compute_engine": {
                    "instance_creation_timestamp": int(instance.created_seconds),
                    "instance_id": instance.id,
                    "instance_name": instance.name,
                    "project_id": project.id,
                    "project_number": int(project.number),
                    "zone": instance.zone,
                }
            },
            "iat": now,
            "iss": ISSUER,
            "sub": "100000000000000000001",
        } | changes
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": self.name})

    def keys(self) -> dict[str, Any]:
        """Return the public keys, as a set of JWKs."""
        key = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        return {"keys": [{**key, "kid": self.name, "alg": "RS256", "use": "sig"}]}


def service_account(project: Project, instance: Instance) -> str:
    """Return the service account that an instance runs as."""
    accounts = instance.body.get("serviceAccounts") or []
    default = f"{project.number}-compute@developer.gserviceaccount.com"
    account = str(accounts[0].get("email", "default")) if accounts else "default"
    return default if account == "default" else account


def answer_key_request(request: Request) -> Answer | None:
    """Return the answer of the endpoints for public keys; None for another path."""
    if request.path == KEYS_PATH:
        return json_answer(signer().keys())
    if request.path == "/.well-known/openid-configuration":
        return json_answer({"issuer": ISSUER, "jwks_uri": request.origin + KEYS_PATH})
    return None
