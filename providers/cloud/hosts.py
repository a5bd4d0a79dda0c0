"""Checks of a host's name: loopback or unspecified address, and reachable from instances."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from autoscaler.domain.errors import SpecError


def require_reachable(host: str, endpoint_url: str | None) -> None:
    """Check that instances of the cloud at `endpoint_url` can reach the controller at `host`.

    Instances that can't would be paid for until their lease ends.

    Raises:
        SpecError: they can't.
    """
    if is_any(host) or (is_here(host) and not is_url_here(endpoint_url)):
        raise SpecError(
            f"instances can't reach {host}: name the address of this host in their network",
            "--host",
        )


def is_here(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def is_any(host: str) -> bool:
    """Return whether a host is the unspecified address, which stands for all addresses."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def is_url_here(url: str | None) -> bool:
    """Return whether a URL's host is a loopback host; False for no URL."""
    return url is not None and is_here(urlsplit(url).hostname or "")
