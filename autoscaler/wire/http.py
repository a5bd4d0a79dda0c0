"""HTTP requests to a controller, authenticated by a token."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import httpcore

from autoscaler.domain import errors
from autoscaler.domain.errors import CastorError, SpecError, Unavailable
from autoscaler.domain.text import printable_lines
from autoscaler.wire.codec import decode, decode_printable
from autoscaler.wire.messages import Fault

Value = TypeVar("Value")

_TIMEOUT_SECONDS: Final = 30.0
_TIMEOUTS: Final = dict.fromkeys(("connect", "read", "write", "pool"), _TIMEOUT_SECONDS)
_CHUNK_BYTES: Final = 1 << 16
_CONNECTIONS: Final = 100
_IDLE_CONNECTIONS: Final = 20
_IDLE_SECONDS: Final = 5.0
_ERRORS: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
# What a path and its query may hold as it is.
_SAFE: Final = "%/:?[]@!$&'()*+,;=~"


class Http:
    """HTTP connections to a controller, which threads may share.

    An error answer is raised as the error class that it names, and failures as `Unavailable`.
    """

    def __init__(
        self, url: str, token: str | None, connections: httpcore.ConnectionInterface | None = None
    ) -> None:
        """Prepare requests to `url`; `connections` stand in for real ones in tests.

        Raises:
            SpecError: the URL is none.
        """
        self._url = url
        self._base = url.rstrip("/")
        self.token = token
        try:
            parts = urlsplit(url)
            _ = parts.port  # which is checked as it is read
        except ValueError as error:
            raise SpecError(
                f"{url!r} is not a URL ({error}): write http://HOST:PORT", "CASTOR_URL"
            ) from None
        self._connections = connections or _connections_to(parts)

    def use_token(self, token: str) -> None:
        """Use another token for all requests that begin from now on."""
        self.token = token

    def call(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send a request and return the body of the answer."""
        headers = {} if content is None else {"Content-Type": content_type}
        try:
            with self._answer(method, path, content, headers) as response:
                response.read()
        except _ERRORS as error:
            raise Unavailable(
                f"no controller answers at {self._url} ({error}): start one with `castor serve`, "
                "or set CASTOR_URL"
            ) from None
        self._raise_for(response, path)
        return response.content

    def upload(self, path: str, file: BinaryIO) -> None:
        """Upload a file from its current position."""
        try:
            chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
            with self._answer("PUT", path, chunks) as response:
                response.read()
        except _ERRORS as error:
            raise Unavailable(f"the upload to {self._url} failed: {error}") from None
        self._raise_for(response, path)

    def download(
        self,
        path: str,
        destination: Path,
        on_bytes: Callable[[int], None] = lambda received: None,
    ) -> None:
        """Download `path` to a file; `on_bytes` is called with the size of each part."""
        try:
            with self._answer("GET", path) as response:
                if _is_error(response):
                    response.read()
                self._raise_for(response, path)
                with destination.open("wb") as file:
                    for chunk in response.iter_stream():
                        file.write(chunk)
                        on_bytes(len(chunk))
        except _ERRORS as error:
            raise Unavailable(f"the download from {self._url} failed: {error}") from None

    def get(self, kind: type[Value], path: str) -> Value:
        """Return the value at `path`, decoded as type `kind`."""
        return decode(kind, self.call("GET", path))

    def get_printable(self, kind: type[Value], path: str) -> Value:
        """Return the value at `path`, with texts that are safe to print on a terminal."""
        return decode_printable(kind, self.call("GET", path))

    def exists(self, path: str) -> bool:
        """Return whether `path` exists."""
        try:
            with self._answer("HEAD", path) as response:
                response.read()
                return 200 <= response.status < 300
        except _ERRORS as error:
            raise Unavailable(f"no controller answers at {self._url}: {error}") from None

    def close(self) -> None:
        """Close the connections."""
        if isinstance(self._connections, httpcore.ConnectionPool):
            self._connections.close()

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        content: bytes | Iterator[bytes] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Iterator[httpcore.Response]:
        """Send a request and yield its answer, whose body is not read yet."""
        token = self.token
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        all_headers = {"Accept": "*/*", **authorization, **(headers or {})}
        with self._connections.stream(
            method,
            f"{self._base}{quote(path, safe=_SAFE)}",
            headers=[(name.encode(), value.encode()) for name, value in all_headers.items()],
            content=content,
            extensions={"timeout": _TIMEOUTS},
        ) as response:
            yield response

    def _raise_for(self, response: httpcore.Response, path: str) -> None:
        """Raise the error that an answer names; an error of the server itself as `Unavailable`."""
        if not _is_error(response):
            return
        try:
            fault = decode(Fault, response.content)
        except SpecError:
            raise Unavailable(f"{self._base}{path} answered {response.status}") from None
        message = printable_lines(fault.message)
        if response.status >= 500:
            raise Unavailable(message)
        kind = getattr(errors, fault.error, CastorError)
        if not (isinstance(kind, type) and issubclass(kind, CastorError)):
            kind = CastorError
        raise kind(message)


def _is_error(response: httpcore.Response) -> bool:
    return response.status >= 400


def _connections_to(url: SplitResult) -> httpcore.ConnectionPool:
    """Return a pool of connections, through the proxy that the environment names for the URL."""
    return httpcore.ConnectionPool(
        ssl_context=_trusted() if url.scheme.lower() == "https" else None,
        proxy=proxy_for(url),
        max_connections=_CONNECTIONS,
        max_keepalive_connections=_IDLE_CONNECTIONS,
        keepalive_expiry=_IDLE_SECONDS,
    )


def _trusted() -> ssl.SSLContext:
    """Return the trusted certificates: those of certifi, or those that the environment names."""
    file, directory = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or directory:
        return ssl.create_default_context(cafile=file or None, capath=directory or None)
    import certifi

    return ssl.create_default_context(cafile=certifi.where())


def proxy_for(url: SplitResult) -> httpcore.Proxy | None:
    """Return the proxy that the environment names for a URL; None for no proxy."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    address = proxies.get(url.scheme.lower()) or proxies.get("all")
    if not address or proxy_bypass(url.netloc.rpartition("@")[2]):
        return None
    if "://" not in address:
        address = f"http://{address}"
    parts = urlsplit(address)
    login = (parts.username or "", parts.password or "") if parts.username else None
    return httpcore.Proxy(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", auth=login)
