"""OpenID Connect provider on a port of this machine, whose answers a test can spoil."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

CLIENT_ID, SECRET = "castor", "the secret"


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """Return the private key of a name."""
    return rsa.generate_private_key(public_exponent=65_537, key_size=2048)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a name."""
    return ec.generate_private_key(ec.SECP256R1())


def public_key(name: str) -> dict[str, Any]:
    """Return the public RSA key of a name as a JWK."""
    key: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(name).public_key(), True)
    return {**key, "kid": name, "use": "sig", "alg": "RS256"}


@dataclass
class FakeIdentityProvider:
    """State of the provider, which a test may change between requests.

    `pages` replaces the answer of a path: (status, body). `id_token` is a whole token, None: one
    of `claims` is signed by the key called `key`. `requests` are (path, form, headers).
    """

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    keys: list[dict[str, Any]] = field(default_factory=lambda: [public_key("first")])
    key: str = "first"
    id_token: str | None = None
    pages: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    challenge: str = ""
    nonce: str = ""
    redirect_uri: str = ""

    def paths(self) -> list[str]:
        """Return the paths of all requests."""
        return [path for path, _, _ in self.requests]

    def log_in(self, url: str) -> str:
        """Log a person in at the page of an authorization URL, and return the code."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert query["response_type"] == "code" and query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        self.challenge, self.nonce = query["code_challenge"], query["nonce"]
        self.redirect_uri = query["redirect_uri"]
        return "the code"

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        """Return an ID token of these claims, signed by the present key."""
        headers = {"kid": self.key, **header}
        return jwt.encode(claims, rsa_key(self.key), algorithm="RS256", headers=headers)

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, bytes]:
        """Return status and body of the answer to a request."""
        if path in self.pages:
            return self.pages[path]
        documents = {
            "/.well-known/openid-configuration": self._configuration,
            "/keys": lambda: {"keys": self.keys},
            "/userinfo": lambda: self.userinfo,
        }
        if path == "/token":
            return self._token(form)
        if path not in documents:
            return 404, b"{}"
        return 200, json.dumps(documents[path]()).encode()

    def _configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            **self.metadata,
        }

    def _token(self, form: dict[str, str]) -> tuple[int, bytes]:
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        is_right = (form.get("code"), challenge) == ("the code", self.challenge)
        if not is_right or form.get("redirect_uri") != self.redirect_uri:
            return 400, b'{"error": "invalid_grant", "error_description": "no such code"}'
        id_token = self.id_token or self.sign({"nonce": self.nonce, **self.claims})
        token = {"access_token": "access", "token_type": "Bearer", "id_token": id_token}
        return 200, json.dumps(token).encode()


@contextmanager
def identity_provider() -> Iterator[FakeIdentityProvider]:
    """Run a provider on a free port."""
    provider = FakeIdentityProvider()

    class Handler(BaseHTTPRequestHandler):
        """Handler of the requests of the provider's client."""

        def do_GET(self) -> None:
            """Answer a request."""
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            provider.requests.append((self.path, form, dict(self.headers)))
            status, content = provider.answer(self.path, form)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
