from __future__ import annotations

import ssl

import httpx
import pytest

from autoscaler.domain.errors import CastorError, Conflict, SpecError, Unavailable
from autoscaler.wire.client import Client
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import Fault


def refusing(status: int, error: str) -> Client:
    """A client of a controller that refuses everything."""
    text = encode(Fault, Fault(error, "because"))
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=text))
    return Client("http://controller", "token", transport)


@pytest.mark.parametrize(
    ("status", "error", "raised"),
    [
        (409, "Conflict", Conflict),
        (400, "NoSuchError", CastorError),
        (503, "StoreError", Unavailable),
        (503, "Unavailable", Unavailable),
        (500, "LedgerError", Unavailable),
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
    ("url", "mode"),
    [("https://a:1", ssl.CERT_REQUIRED), ("HTTPS://a:1", ssl.CERT_REQUIRED), ("http://a:1", 0)],
)
def test_certificates_are_looked_at_wherever_there_are_any(
    monkeypatch: pytest.MonkeyPatch, url: str, mode: int
) -> None:
    made: list[ssl.SSLContext] = []
    create = httpx.create_ssl_context

    def kept(**options: object) -> ssl.SSLContext:
        made.append(create(**options))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr("httpx._transports.default.create_ssl_context", kept)
    Client(url, "token")
    assert {each.verify_mode for each in made} == {mode}
