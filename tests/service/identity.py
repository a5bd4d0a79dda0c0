"""Identity provider of the tests of logins, and a person's browser."""

from __future__ import annotations

import html
import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from autoscaler.domain.access import Role
from autoscaler.domain.errors import CastorError
from autoscaler.service.access.oidc_settings import OidcSettings
from autoscaler.wire.access_messages import BegunLogin, LoginRequest
from autoscaler.wire.login_client import LoginClient

ISSUER = "https://provider.example"
SETTINGS = OidcSettings(ISSUER, "castor", domains=frozenset({"example.org"}), new_role=Role.VIEWER)


@dataclass
class ScriptedProvider:
    """Identity provider that names whom a test says; `trouble` is its error."""

    value: str = "ada@example.org"
    trouble: CastorError | None = None
    codes: list[str] = field(default_factory=list)

    def authorization_url(self, state: str, nonce: str, verifier: str) -> str:
        if self.trouble is not None:
            raise self.trouble
        return f"{ISSUER}/authorize?{urlencode({'state': state})}"

    def name(self, code: str, nonce: str, verifier: str) -> str:
        if self.trouble is not None:
            raise self.trouble
        self.codes.append(code)
        return self.value


class Browser:
    """Browser of a person, with its own cookies."""

    def __init__(self, url: str, trust: ssl.SSLContext | None = None) -> None:
        self.http = httpx.Client(base_url=url, timeout=30, verify=trust or True)

    def open(self, begun: BegunLogin) -> httpx.Response:
        """Open the page of a login, and return its redirect to the provider."""
        return self.http.get(f"/login?code={begun.user_code}")

    def answer(self, redirect: httpx.Response, **changes: str) -> httpx.Response:
        """Return the controller's page for the provider's answer to a redirect."""
        query = parse_qs(urlsplit(redirect.headers["location"]).query)
        answer = {"state": query["state"][0], "code": "a-code", **changes}
        return self.http.get(f"/login/callback?{urlencode(answer)}")

    def question(self, begun: BegunLogin) -> httpx.Response:
        """Return the page that asks to approve a login."""
        return self.answer(self.open(begun))

    def decide(self, question: httpx.Response, decision: str = "approve") -> httpx.Response:
        """Press a button of the page that asks to approve a login."""
        form = {"form_token": form_token(question), "decision": decision}
        return self.http.post("/login", data=form)

    def approve(self, begun: BegunLogin) -> httpx.Response:
        """Log in at the provider, and approve."""
        return self.decide(self.question(begun))


def form_token(question: httpx.Response) -> str:
    """Return the hidden value of the form in a page."""
    match = re.search(r'name="form_token" value="([^"]+)"', question.text)
    assert match is not None, question.text
    return html.unescape(match[1])


def begin(url: str, host: str = "laptop") -> tuple[LoginClient, BegunLogin]:
    """Begin a login as a terminal does."""
    client = LoginClient(url)
    return client, client.begin(LoginRequest(host))
