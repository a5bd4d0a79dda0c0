"""HTTP requests to a controller, authenticated by a token.

A controller that follows another one redirects requests to it. The client follows once, and sends
its token only to a URL that it was configured with, or over HTTPS.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Generic, TypeVar
from urllib.parse import SplitResult, parse_qs, quote, urlencode, urlsplit
from uuid import uuid4

import httpcore

from autoscaler.domain import errors
from autoscaler.domain.errors import CastorError, SpecError, Unavailable, Unreachable
from autoscaler.domain.rules import require_path_name, require_unicode
from autoscaler.domain.text import printable_lines
from autoscaler.wire.codec import decode, decode_printable
from autoscaler.wire.messages import Fault

Value = TypeVar("Value")
Content = bytes | Iterator[bytes] | None

_TIMEOUT_SECONDS: Final = 30.0
_TIMEOUTS: Final = dict.fromkeys(("connect", "read", "write", "pool"), _TIMEOUT_SECONDS)
_CHUNK_BYTES: Final = 1 << 16
_CONNECTIONS: Final = 100
_IDLE_CONNECTIONS: Final = 20
# Shorter than the controller keeps connections, and longer than the usual interval of heartbeats.
_IDLE_SECONDS: Final = 25.0
_REDIRECT: Final = 307
_TOO_MANY: Final = 429
_REPEATS: Final = 2
_ERRORS: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
_NEXT: Final = re.compile(r'<([^>]*)>; rel="next"')


@dataclass(frozen=True, slots=True)
class _Request:
    """Request, which may be sent more than once. `path` is quoted."""

    method: str
    path: str
    content: Callable[[], Content]
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Page(Generic[Value]):
    """Part of a list, and the cursor of the next part; None after the last one."""

    items: tuple[Value, ...]
    cursor: str | None


class Http:
    """HTTP connections to a controller, which threads may share.

    Each `path` is quoted, as `api_path` returns it. An error answer is raised as the error class
    that it names, and failures as `Unavailable`; of `call`, as `Unreachable` if no server accepts
    a connection.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        connections: httpcore.ConnectionInterface | None = None,
        authority: str | None = None,
    ) -> None:
        """Prepare requests to `url`, or to the first that answers of several with commas between.

        `connections` stand in for real ones in tests. `authority` has the only certificates that
        are trusted, as PEM; None: those that the environment or certifi names.

        Raises:
            SpecError: the URL is none, or `authority` has no certificate.
        """
        self._authority = authority
        self._url = url
        self._urls = tuple(part.strip().rstrip("/") for part in url.split(","))
        self._base = self._urls[0]
        self.token = token
        self._given_connections = connections
        self._pools: dict[str, httpcore.ConnectionPool] = {}
        for part in self._urls:
            self._connections(part)

    def use_token(self, token: str) -> None:
        """Use another token for all requests that begin from now on."""
        self.token = token

    def call(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        content_type: str = "application/json",
        version: str | None = None,
    ) -> bytes:
        """Send a request and return the body of the answer.

        `version` is one that the object must still have, or else `Outdated` is raised; None: any.
        """
        headers = {} if content is None else {"Content-Type": content_type}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        return self._call(method, path, content, headers).content

    def create(self, path: str, content: bytes | None = None, version: str | None = None) -> bytes:
        """Send a request that creates something, and return the body of the answer.

        The request has an idempotency key, so that it is repeated if the answer is lost.
        `version` is as in `call`.
        """
        headers = {"Idempotency-Key": uuid4().hex}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        if content is not None:
            headers["Content-Type"] = "application/json"
        for _ in range(_REPEATS):
            try:
                return self._call("POST", path, content, headers).content
            except Unreachable:
                raise
            except Unavailable as error:
                if not isinstance(error.__cause__, _ERRORS):
                    raise
        return self._call("POST", path, content, headers).content

    def _call(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> httpcore.Response:
        try:
            with self._answer(method, path, lambda: content, headers) as response:
                response.read()
        except _ERRORS as error:
            raise _no_answer(self._url, error) from error
        self._raise_for(response, path)
        return response

    def upload(self, path: str, file: BinaryIO) -> None:
        """Upload a file from its current position."""
        start = file.tell()

        def chunks() -> Iterator[bytes]:
            file.seek(start)
            return iter(lambda: file.read(_CHUNK_BYTES), b"")

        try:
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

    def get_page(self, kind: type[Value], path: str) -> Page[Value]:
        """Return a page of a list of items of type `kind`, with texts that are safe to print.

        A controller without pages returns the whole list.
        """
        items, cursor = self.get_part(tuple[kind, ...], path)  # type: ignore[valid-type]
        return Page(items, cursor)

    def get_part(self, kind: type[Value], path: str) -> tuple[Value, str | None]:
        """Return an answer that has a page of a list, and the cursor of the next; None: the last.

        Its texts are safe to print.
        """
        response = self._call("GET", path, None, {})
        return decode_printable(kind, response.content), _next_cursor(response)

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
        for pool in self._pools.values():
            pool.close()

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        content: Callable[[], Content] = lambda: None,
        headers: dict[str, str] | None = None,
    ) -> Iterator[httpcore.Response]:
        """Send a request and yield its answer, whose body is not read yet.

        `content` is called for each attempt.
        """
        request = _Request(method, path, content, headers or {})
        with ExitStack() as stack:
            response = self._first_answer(stack, request)
            if response.status == _REDIRECT:
                response.read()
                self._base = self._leader(response)
                response = stack.enter_context(self._stream(self._base, request))
            yield response

    def _first_answer(self, stack: ExitStack, request: _Request) -> httpcore.Response:
        """Return the answer of the last controller that answered, or else of the next one."""
        bases = (self._base, *(url for url in self._urls if url != self._base))
        for base in bases:
            try:
                response = stack.enter_context(self._stream(base, request))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):  # nothing was sent
                if base == bases[-1]:
                    raise
            else:
                self._base = base
                return response
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def _stream(self, base: str, request: _Request) -> Iterator[httpcore.Response]:
        token = self.token
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        all_headers = {"Accept": "*/*", **authorization, **request.headers}
        with self._connections(base).stream(
            request.method,
            f"{base}{request.path}",
            headers=[(name.encode(), value.encode()) for name, value in all_headers.items()],
            content=request.content(),
            extensions={"timeout": _TIMEOUTS},
        ) as response:
            yield response

    def _leader(self, response: httpcore.Response) -> str:
        """Return the URL of the leader from a follower's redirect.

        Raises:
            Unavailable: the token must not be sent there.
        """
        locations = [value for name, value in response.headers if name.lower() == b"location"]
        location = locations[0].decode("latin-1") if locations else ""
        try:
            parts = urlsplit(location)
            base = f"{parts.scheme}://{parts.netloc}"
        except ValueError:
            base = ""
        if base in self._urls or (base.startswith("https://") and parts.hostname):
            return base
        raise Unavailable(
            f"{self._base} follows the controller at {printable_lines(base) or 'no address'}, to "
            "which no token is sent over HTTP unless it is configured: set "
            "CASTOR_URL=http://FIRST:PORT,http://SECOND:PORT"
        )

    def _connections(self, base: str) -> httpcore.ConnectionInterface | httpcore.ConnectionPool:
        """Return the connections for a URL.

        Raises:
            SpecError: the URL is none.
        """
        if base not in self._pools:
            try:
                parts = urlsplit(base)
                _ = parts.port  # which is checked as it is read
            except ValueError as error:
                raise SpecError(
                    f"{base!r} is not a URL ({error}): write http://HOST:PORT", "CASTOR_URL"
                ) from None
            if self._given_connections is not None:
                return self._given_connections
            self._pools[base] = _connections_to(parts, self._authority)
        return self._pools[base]

    def _raise_for(self, response: httpcore.Response, path: str) -> None:
        """Raise the error that an answer names; an error of the server itself as `Unavailable`."""
        if not _is_error(response):
            return
        try:
            fault = decode(Fault, response.content)
        except SpecError:
            raise Unavailable(f"{self._base}{path} answered {response.status}") from None
        message = printable_lines(fault.message)
        if response.status >= 500 or response.status == _TOO_MANY:
            raise Unavailable(message)
        kind = getattr(errors, fault.error, CastorError)
        if not (isinstance(kind, type) and issubclass(kind, CastorError)):
            kind = CastorError
        if issubclass(kind, SpecError) and fault.field is not None:
            raise kind(message.removeprefix(f"{fault.field}: "), fault.field)
        raise kind(message)


def api_path(template: str, query: Mapping[str, object] | None = None, /, **names: str) -> str:
    """Return a path of the API with names in place of fields such as ``{name}``, and a query.

    Each name stays one part of the path, whatever its characters are.

    Raises:
        SpecError: a name can't be a part of a path; the error has its field.
    """
    parts = {field: path_part(name, field) for field, name in names.items()}
    return with_query(template.format_map(parts), query or {})


def path_part(name: str, field: str) -> str:
    """Return a name as one quoted part of a path.

    Raises:
        SpecError: the name can't be one; the error has the `field`.
    """
    require_path_name(name, field)
    return quote(name, safe="")


def with_query(path: str, query: Mapping[str, object]) -> str:
    """Return a path with a quoted query, without the parameters that are None.

    Raises:
        SpecError: a text is not Unicode; the error has its parameter.
    """
    given = {field: value for field, value in query.items() if value is not None}
    for field, value in given.items():
        if isinstance(value, str):
            require_unicode(value, field)
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _no_answer(url: str, error: Exception) -> Unavailable:
    """Return the error of a request that got no answer."""
    # A server that accepts connections and does not complete the handshake may be frozen.
    causes = (error.__cause__, *error.args)
    is_of_tls = any(isinstance(cause, ssl.SSLError) for cause in causes)
    if is_of_tls or "handshake" in str(error):
        return Unavailable(
            f"no encrypted connection to the controller at {url} ({error}): set CASTOR_CA to the "
            "file of its certificate, and write https:// only if it serves HTTPS"
        )
    is_unreachable = isinstance(error, (httpcore.ConnectError, httpcore.ConnectTimeout))
    kind = Unreachable if is_unreachable else Unavailable
    return kind(
        f"no controller answers at {url} ({error}): start one with `castor serve`, or set "
        "CASTOR_URL"
    )


def _next_cursor(response: httpcore.Response) -> str | None:
    """Return the cursor in the address of the next page; None for the last page."""
    links = [value for name, value in response.headers if name.lower() == b"link"]
    link = _NEXT.search(links[0].decode("latin-1")) if links else None
    cursors = parse_qs(urlsplit(link[1]).query).get("cursor") if link else None
    return cursors[0] if cursors else None


def _is_error(response: httpcore.Response) -> bool:
    return response.status >= 300


def _connections_to(url: SplitResult, authority: str | None) -> httpcore.ConnectionPool:
    """Return a pool of connections, through the proxy that the environment names for the URL."""
    context = None
    if url.scheme.lower() == "https":
        context = usual_trust() if authority is None else trusting(authority)
    return httpcore.ConnectionPool(
        ssl_context=context,
        proxy=proxy_for(url),
        max_connections=_CONNECTIONS,
        max_keepalive_connections=_IDLE_CONNECTIONS,
        keepalive_expiry=_IDLE_SECONDS,
    )


def trusting(authority: str) -> ssl.SSLContext:
    """Return a client's settings that trust these certificates, as PEM, and no others.

    A certificate that is no authority is trusted for itself.

    Raises:
        SpecError: the text has no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise SpecError(f"the controller's certificate can't be read: {error}") from None
    return context


def usual_trust() -> ssl.SSLContext:
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
