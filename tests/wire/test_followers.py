"""Client of a controller that follows another one, and the follower's side of it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import StoreError, Unavailable
from autoscaler.service.following import FollowerGate, LeaderAddress
from autoscaler.wire.http import Http


@dataclass
class Heard:
    """Requests that a server heard: method, path, token and body."""

    requests: list[tuple[str, str, str, bytes]] = field(default_factory=list)


Reply = tuple[int, dict[str, str], bytes]


@contextmanager
def server(
    reply: Callable[[str], Reply],
) -> Iterator[tuple[str, Heard]]:
    """Serve on a port of this machine; `reply` answers a path."""
    heard = Heard()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self._body()
            token = self.headers.get("Authorization", "")
            heard.requests.append((self.command, self.path, token, body))
            status, headers, content = reply(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_POST = do_PUT = do_HEAD = do_GET

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = b""
            while size := int(self.rfile.readline(), 16):
                parts += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return parts

        def log_message(self, *_: Any) -> None:
            return

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", heard
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def _leading(path: str) -> Reply:
    return 200, {}, b"done"


def _redirecting(target: str) -> Callable[[str], Reply]:
    fault = json.dumps({"error": "Unavailable", "message": f"follows {target}"}).encode()
    return lambda path: (307, {"Location": f"{target}{path}"}, fault)


def test_a_write_to_a_follower_reaches_the_leader_with_its_body_and_token() -> None:
    with server(_leading) as (leader, heard), server(_redirecting(leader)) as (follower, asked):
        http = Http(f"{follower},{leader}", "secret")
        assert http.call("POST", "/v1/jobs?a=b", b"{}") == b"done"
        http.upload("/v1/bundles/1", io.BytesIO(b"x" * 100_000))
        assert http.exists("/v1/bundles/1")
        http.close()
    assert [request[0] for request in asked.requests] == ["POST"], "then the leader is asked"
    assert heard.requests[0] == ("POST", "/v1/jobs?a=b", "Bearer secret", b"{}")
    assert heard.requests[1][3] == b"x" * 100_000


def test_an_upload_that_is_redirected_is_sent_whole() -> None:
    with server(_leading) as (leader, heard), server(_redirecting(leader)) as (follower, _):
        http = Http(f"{follower},{leader}", "secret")
        file = io.BytesIO(b"skipped" + b"y" * 100_000)
        file.seek(7)
        http.upload("/v1/bundles/1", file)
        http.close()
    assert heard.requests[0][3] == b"y" * 100_000


def test_no_token_is_sent_over_http_to_an_address_that_was_not_configured() -> None:
    with server(_leading) as (other, heard), server(_redirecting(other)) as (follower, _):
        http = Http(follower, "secret")
        with pytest.raises(Unavailable, match=f"follows the controller at {other}.*CASTOR_URL="):
            http.call("POST", "/v1/jobs", b"{}")
        http.close()
    assert heard.requests == []


@pytest.mark.parametrize("target", ["", "//evil", "ftp://evil", "https:evil", "http://[bad"])
def test_a_redirect_to_no_url_is_refused(target: str) -> None:
    with server(_redirecting(target)) as (follower, _):
        http = Http(follower, "secret")
        with pytest.raises(Unavailable):
            http.call("POST", "/v1/jobs", b"{}")
        http.close()


def test_a_second_redirect_is_not_followed() -> None:
    with (
        server(lambda path: (307, {"Location": "https://x"}, b"{}")) as (second, _),
        server(_redirecting(second)) as (first, asked),
    ):
        http = Http(f"{first},{second}", "secret")
        with pytest.raises(Unavailable):
            http.call("POST", "/v1/jobs", b"{}")
        http.close()
    assert len(asked.requests) == 1


def test_the_next_configured_controller_is_asked_if_one_is_gone() -> None:
    with server(_leading) as (gone, _):
        pass
    with server(_leading) as (alive, heard):
        http = Http(f"{gone},{alive}", "secret")
        assert http.call("GET", "/v1/jobs") == b"done"
        http.close()
        with pytest.raises(Unavailable, match="no controller answers"):
            Http(gone, "secret").call("GET", "/v1/jobs")
    assert len(heard.requests) == 1


class Store:
    """Store that knows who leads, or does not answer."""

    def __init__(self) -> None:
        self.address: str | None = "http://leader:8470"
        self.asked = 0

    def ask(self) -> str | None:
        self.asked += 1
        if self.address == "fails":
            raise StoreError("it does not answer")
        return self.address


async def _answer(gate: FollowerGate, method: str, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(gate)
    async with httpx.AsyncClient(transport=transport, base_url="http://follower") as client:
        return await client.request(method, path, content=b"{}" if method != "GET" else None)


@pytest.mark.parametrize(
    ("method", "path", "is_here"),
    [
        ("GET", "/v1/jobs", True),
        ("GET", "/v1/jobs/digits/decisions?limit=5", True),
        ("GET", "/v1/costs/days?first=2026-01-01", True),
        ("GET", "/v1/studies/sweep", True),
        ("GET", "/v1/fleet", False),  # offers are the loop's
        ("GET", "/v1/studies/sweep/calls", False),
        ("GET", "/v1/jobs/digits/outputs", False),
        ("POST", "/v1/jobs", False),
        ("POST", "/v1/jobs/digits/logs", False),
        ("POST", "/v1/node/heartbeat", False),
        ("PUT", "/v1/bundles/ab", False),
        ("POST", "/v1/logins", False),  # pending logins are in the leader's memory
        ("POST", "/v1/logins/token", False),
        ("GET", "/login?code=BCDF-GHJK", False),
        ("GET", "/login/callback?state=a&code=b", False),
        ("POST", "/login", False),
        ("GET", "/logins", True),
    ],
)
def test_a_follower_serves_reads_of_the_store_and_redirects_the_rest(
    method: str, path: str, is_here: bool
) -> None:
    gate = FollowerGate(
        PlainTextResponse("here"), lambda: True, LeaderAddress(Store().ask, VirtualClock())
    )
    reply = asyncio.run(_answer(gate, method, path))
    if is_here:
        assert reply.text == "here"
    else:
        assert reply.status_code == 307
        assert reply.headers["Location"] == f"http://leader:8470{path}"


def test_without_a_leader_a_follower_asks_to_repeat_the_request() -> None:
    store, clock = Store(), VirtualClock()
    gate = FollowerGate(PlainTextResponse("here"), lambda: True, LeaderAddress(store.ask, clock))
    for store.address in (None, "fails"):
        clock.advance(2.0)
        reply = asyncio.run(_answer(gate, "POST", "/v1/jobs"))
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "2")
        assert asyncio.run(_answer(gate, "GET", "/v1/jobs")).text == "here"
    assert store.asked == 2


def test_all_requests_to_a_leader_pass() -> None:
    store = Store()
    gate = FollowerGate(
        PlainTextResponse("here"), lambda: False, LeaderAddress(store.ask, VirtualClock())
    )
    assert asyncio.run(_answer(gate, "POST", "/v1/jobs")).text == "here"
    assert store.asked == 0
