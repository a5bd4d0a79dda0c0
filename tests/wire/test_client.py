from __future__ import annotations

import os
import ssl
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

import httpcore
import pytest

from autoscaler.domain.errors import CastorError, Conflict, SpecError, Unavailable
from autoscaler.wire.client import Client
from autoscaler.wire.codec import encode
from autoscaler.wire.http import proxy_for
from autoscaler.wire.messages import Fault
from tests.fakes.connections import Answering


def refusing(status: int, error: str) -> Client:
    """A client of a controller that refuses everything."""
    text = encode(Fault, Fault(error, "because"))
    return Client("http://controller", "token", Answering(lambda request, body: (status, text)))


@pytest.mark.parametrize(
    ("status", "error", "raised"),
    [
        (409, "Conflict", Conflict),
        (400, "NoSuchError", CastorError),
        (503, "StoreError", Unavailable),
        (503, "Unavailable", Unavailable),
        (500, "LedgerError", Unavailable),
        (429, "Conflict", Unavailable),
    ],
)
def test_a_refusal_is_raised_and_trouble_may_pass(
    status: int, error: str, raised: type[CastorError]
) -> None:
    with pytest.raises(CastorError, match="because") as caught:
        refusing(status, error).jobs()
    assert type(caught.value) is raised


@pytest.mark.parametrize("url", ["http://[::1", "http://here:port"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SpecError, match=r"CASTOR_URL: .* is not a URL"):
        Client(url, "token")


@pytest.mark.parametrize(
    ("url", "modes"),
    [("https://a:1", {ssl.CERT_REQUIRED}), ("HTTPS://a:1", {ssl.CERT_REQUIRED}), ("http://a", {})],
)
def test_certificates_are_looked_at_wherever_there_are_any(
    monkeypatch: pytest.MonkeyPatch, url: str, modes: Collection[int]
) -> None:
    made: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def kept(**options: Any) -> ssl.SSLContext:
        made.append(create(**options))
        return made[-1]

    monkeypatch.setattr("ssl.create_default_context", kept)
    Client(url, "token")
    assert {each.verify_mode for each in made} == set(modes)
    assert all(each.check_hostname for each in made)


def test_paths_are_quoted_and_a_prefix_of_the_address_stays() -> None:
    asked: list[bytes] = []

    def answer(request: httpcore.Request, body: bytes) -> tuple[int, bytes]:
        asked.append(request.url.target)
        return 200, b"[]"

    client = Client("http://controller:1/castor/", "token", Answering(answer))
    client.decisions("my \u00e9#job", limit=3)
    assert asked == [b"/castor/v1/jobs/my%20%C3%A9%23job/decisions?limit=3"]


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"http_proxy": "http://me:word@proxy:3128"}, ("proxy", 3128)),
        ({"HTTP_PROXY": "proxy:3128"}, ("proxy", 3128)),
        ({"all_proxy": "http://proxy:3128"}, ("proxy", 3128)),
        ({"https_proxy": "http://proxy:3128"}, None),
        ({"http_proxy": "http://proxy:3128", "no_proxy": "elsewhere,controller"}, None),
    ],
)
def test_the_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], proxy: tuple[str, int] | None
) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = proxy_for(urlsplit("http://controller:8470"))
    assert proxy == (None if found is None else (found.url.host.decode(), found.url.port))
