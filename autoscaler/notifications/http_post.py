"""HTTPS requests to targets, which reach no address of a cloud's metadata service."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import httpcore

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted
from autoscaler.notifications.base import NotDelivered
from autoscaler.wire.http import proxy_for, trusting, usual_trust

TIMEOUT_SECONDS: Final = 10.0
_LONGEST_URL: Final = 2000
_GONE: Final = 410
_LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0
_TIMEOUTS: Final = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_SECONDS)
_ANSWER_BYTES: Final = 2000
# Services of clouds for their instances, which hand out credentials and are not link-local.
_METADATA: Final = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
)

Resolve = Callable[[str, int], Sequence[str]]


def addresses_of(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a host.

    Raises:
        OSError: it has none, or the name service does not answer.
    """
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def is_refused(address: str) -> bool:
    """Return whether no message may go to an address: link-local, metadata, multicast or none."""
    ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address) and (embedded := ip.ipv4_mapped or ip.sixtofour):
        ip = embedded
    is_special = ip.is_link_local or ip.is_multicast or ip.is_unspecified
    return is_special or ip in _METADATA


def allowed_address(host: str, port: int, resolve: Resolve) -> str:
    """Return the address to connect to, so that the name is not looked up again.

    Raises:
        NotDelivered: the host has no address, or any of its addresses is refused.
    """
    try:
        addresses = resolve(host, port)
    except OSError as error:
        raise NotDelivered(f"{host} has no address: {error.strerror or error}") from None
    for address in addresses:
        if is_refused(address):
            raise NotDelivered(
                f"{host} is at {address}, an address of this machine's cloud or network service, "
                "to which nothing is sent: name another host"
            )
    if not addresses:
        raise NotDelivered(f"{host} has no address")
    return addresses[0]


class _CheckedBackend(httpcore.NetworkBackend):
    """Network in which each address is checked before it is connected to."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the checked address of a host.

        Raises:
            NotDelivered: as `allowed_address`.
        """
        address = allowed_address(host, port, self._resolve)
        return self._network.connect_tcp(address, port, timeout, local_address, socket_options)

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        self._network.sleep(seconds)


class PostedUrl:
    """URL that receives POST requests. Redirects are not followed."""

    def __init__(
        self,
        url: str,
        *,
        is_insecure: bool = False,
        authority: Path | None = None,
        resolve: Resolve = addresses_of,
    ) -> None:
        """Check the URL, without connecting.

        Raises:
            SpecError: it is none, or is not HTTPS and not `is_insecure`; `field` is `url`. Or the
                file of the `authority` can't be used; then it is `ca_file`.
        """
        parts = require_url(url, is_insecure)
        context = None
        if parts.scheme == "https":
            context = usual_trust() if authority is None else trust_of(authority)
        self._url = url
        self.host = parts.hostname or ""
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            proxy=proxy_for(parts),
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=_CheckedBackend(resolve),
        )

    def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a request; return if the answer's status is 2xx.

        Raises:
            NotDelivered: it is not, or nothing answers.
        """
        all_headers = {
            "Content-Type": "application/json",
            "User-Agent": "castor-notifications",
            **headers,
        }
        try:
            with self._pool.stream(
                "POST",
                self._url,
                headers=[(name.encode(), value.encode()) for name, value in all_headers.items()],
                content=body,
                extensions={"timeout": _TIMEOUTS},
            ) as response:
                self._require_accepted(response)
        except (
            httpcore.TimeoutException,
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.ProxyError,
            httpcore.UnsupportedProtocol,
        ) as error:
            reason = str(error) or type(error).__name__
            raise NotDelivered(f"{self.host} does not answer: {reason}") from None

    def _require_accepted(self, response: httpcore.Response) -> None:
        status = response.status
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise NotDelivered(
                f"{self.host} answered {status}, a redirect, which is not followed: name the "
                "final URL"
            )
        text = b""
        for chunk in response.iter_stream():
            text += chunk
            if len(text) >= _ANSWER_BYTES:
                break
        shown = " ".join(text[:200].decode(errors="replace").split())
        raise NotDelivered(
            f"{self.host} answered {status}{': ' if shown else ''}{shown}",
            is_final=status == _GONE,
            retry_after_seconds=_retry_after_seconds(response),
        )


def require_url(url: str, is_insecure: bool) -> SplitResult:
    """Return the parts of a URL to which messages may go.

    Raises:
        SpecError: it is none, has a user and a password, or is HTTP and not `is_insecure`.
    """
    # The message omits the URL, which may hold a secret.
    wrong = SpecError("must be a URL like https://hooks.example.org/castor", "url")
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        raise wrong from None
    if not is_web or len(url) > _LONGEST_URL or not url.isascii() or any(map(str.isspace, url)):
        raise wrong
    if parts.username is not None or parts.password is not None:
        raise SpecError("must have no user and password: sign the messages instead", "url")
    if parts.scheme == "http" and not is_insecure:
        raise SpecError(
            f"messages to {quoted(parts.hostname)} would travel in the clear: write https://, or "
            "add insecure: true in a network that you trust",
            "url",
        )
    return parts


def trust_of(authority: Path) -> ssl.SSLContext:
    """Return settings that trust the certificates in a file, and no others.

    Raises:
        SpecError: the file can't be used; `field` is `ca_file`.
    """
    try:
        return trusting(authority.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise SpecError(f"{authority} can't be read: {reason}", "ca_file") from None
    except SpecError as error:
        raise SpecError(error.message, "ca_file") from None


def _retry_after_seconds(response: httpcore.Response) -> float | None:
    """Return the wait that an answer asks for, at most an hour; None if it names none."""
    for name, value in response.headers:
        text = value.decode("latin-1").strip()
        if name.lower() == b"retry-after" and text.isdigit():
            return min(float(text), _LONGEST_RETRY_AFTER_SECONDS)
    return None
