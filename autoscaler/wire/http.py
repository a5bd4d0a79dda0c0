"""HTTP requests to a controller, with a token."""

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
    """Requests with a token. A refusal of the server is raised as the error that it names."""

    def __init__(self, url: str, token: str | None, transport: httpx.BaseTransport | None) -> None:
        self._url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._client = httpx.Client(
                base_url=url,
                headers=headers,
                # To read what certificates to trust takes longer than to call; http has none.
                verify=not url.lower().startswith("http://"),
                timeout=_TIMEOUT_SECONDS,
                transport=transport,
            )
        except httpx.InvalidURL as error:
            raise SpecError(
                f"{url!r} is no address ({error}): expected http://HOST:PORT", "CASTOR_URL"
            ) from None

    def call(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send a request; return the body of its answer."""
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
        """Send a file, from where it stands."""
        try:
            response = self._client.put(path, content=iter(lambda: file.read(_CHUNK_BYTES), b""))
        except httpx.HTTPError as error:
            raise Unavailable(f"the upload to {self._url} broke off: {error}") from None
        _raise_for(response)

    def download(
        self,
        path: str,
        destination: Path,
        on_bytes: Callable[[int], None] = lambda received: None,
    ) -> None:
        """Write what is at `path` into a file; `on_bytes` hears the size of each part of it."""
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
            raise Unavailable(f"the download from {self._url} broke off: {error}") from None

    def get(self, kind: type[Value], path: str) -> Value:
        """Return the value that is at `path`."""
        return decode(kind, self.call("GET", path))

    def get_printable(self, kind: type[Value], path: str) -> Value:
        """Return the value that is at `path`, its texts as a terminal may show them."""
        return decode_printable(kind, self.call("GET", path))

    def exists(self, path: str) -> bool:
        """Return whether there is something at `path`."""
        try:
            return self._client.head(path).is_success
        except httpx.HTTPError as error:
            raise Unavailable(f"no controller answers at {self._url}: {error}") from None

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _raise_for(response: httpx.Response) -> None:
    """Raise what the server refused a request for; trouble of its own says nothing of that."""
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
