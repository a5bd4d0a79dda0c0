"""A person's browser without scripts: cookies, forms and pages of the controller."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import unescape

import httpx

from tests.service.conftest import TOKEN, Api


@dataclass
class PageVisitor:
    """Browser of a person, signed in with `token`; None: not signed in."""

    api: Api
    token: str | None = TOKEN
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {"Accept": "text/html,application/xhtml+xml"}
        self.http = httpx.Client(base_url=self.api.url, headers=headers, timeout=90)
        if self.token is not None:
            reply = self.http.post("/sign-in", data={"token": self.token})
            assert reply.status_code == 303, reply.text

    def get(self, path: str) -> httpx.Response:
        return self.http.get(path)

    def text(self, path: str) -> str:
        """Return the visible text of a page, in one line."""
        reply = self.get(path)
        assert reply.status_code == 200, reply.text
        return visible(reply.text)

    def form_token(self) -> str:
        """Return the token of the forms of this session."""
        hidden_field = re.search(r'name="form_token" value="([0-9a-f]+)"', self.get("/").text)
        assert hidden_field is not None
        return hidden_field[1]

    def send(self, path: str, **fields: str) -> httpx.Response:
        """Send a form of a page of this session."""
        return self.http.post(path, data={"form_token": self.form_token(), **fields})


def visible(page: str) -> str:
    """Return the text of a page without tags, in one line."""
    body = re.sub(r"(?s)<head>.*?</head>|<script.*?</script>", "", page)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def version(page: str) -> str:
    """Return the version of the object that a form of a page changes."""
    hidden_field = re.search(r'name="version" value="(\w+)"', page)
    assert hidden_field is not None
    return hidden_field[1]
