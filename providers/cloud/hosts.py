"""Where a host is, as far as its name says it."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_here(host: str) -> bool:
    """Whether it can only be this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def is_any(host: str) -> bool:
    """Whether it stands for all addresses of a machine, and is none itself."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def is_url_here(url: str | None) -> bool:
    """Whether what is at a URL is on this machine; no URL is elsewhere."""
    return url is not None and is_here(urlsplit(url).hostname or "")
