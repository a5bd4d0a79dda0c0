"""HTTP requests to a controller, authenticated by a token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

import httpx

from autoscaler.domain import errors
from autoscaler.domain.errors import CastorError, SpecError, Unavailable
from autoscaler.domain.text import printable_lines
from autoscaler.wire.codec import decode, decode_printable
from autoscaler.wire.messages import Fault

Value = TypeVar("Value")

_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 16


class Http:
    """HTTP connection to a controller.

    An error answer is raised as the error class that it names, and failures as `Unavailable`.
    """

    def __init__(self, url: str, token: str | None, transport: httpx.BaseTransport | None) -> None:
        self._url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._client = httpx.Client(
                base_url=url,
                headers=headers,
                # Loading trusted certificates takes longer than a call. Plain http needs none.
                verify=not url.lower().startswith("http://"),
                timeout=_TIMEOUT_SECONDS,
                transport=transport,
            )
        except httpx.InvalidURL as error:
            raise SpecError(
                f"{url!r} is not a URL ({error}): write http://HOST:PORT", "CASTOR_URL"
            ) from None

    def call(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send a request and return the body of the answer."""
        headers = {"Content-Type": content_type} if content is not None else {}
        try:
            response = self._client.request(method, path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise Unavailable(
                f"no controller answers at {self._url} ({error}): start one with `castor serve`, "
                "or set CASTOR_URL"
            ) from None
        _raise_for(response)
        return response.content

    def upload(self, path: str, file: BinaryIO) -> None:
        """Upload a file from its current position."""
        try:
            response = self._client.put(path, content=iter(lambda: file.read(_CHUNK_BYTES), b""))
        except httpx.HTTPError as error:
            raise Unavailable(f"the upload to {self._url} failed: {error}") from None
        _raise_for(response)

    def download(
        self,
        path: str,
        destination: Path,
        on_bytes: Callable[[int], None] = lambda received: None,
    ) -> None:
        """Download `path` to a file; `on_bytes` is called with the size of each part."""
        try:
            with self._client.stream("GET", path) as response:
                if response.is_error:
                    response.read()
                _raise_for(response)
                with destination.open("wb") as file:
                    for chunk in response.iter_bytes(_CHUNK_BYTES):
                        file.write(chunk)
                        on_bytes(len(chunk))
        except httpx.HTTPError as error:
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
            return self._client.head(path).is_success
        except httpx.HTTPError as error:
            raise Unavailable(f"no controller answers at {self._url}: {error}") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _raise_for(response: httpx.Response) -> None:
    """Raise the error that an answer names; an error of the server itself as `Unavailable`."""
    if not response.is_error:
        return
    try:
        fault = decode(Fault, response.content)
    except SpecError:
        raise Unavailable(f"{response.url} answered {response.status_code}") from None
    message = printable_lines(fault.message)
    if response.is_server_error:
        raise Unavailable(message)
    kind = getattr(errors, fault.error, CastorError)
    if not (isinstance(kind, type) and issubclass(kind, CastorError)):
        kind = CastorError
    raise kind(message)
