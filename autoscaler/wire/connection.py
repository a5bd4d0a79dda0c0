"""Where the controller is, and who we are to it."""

from __future__ import annotations

import json
import os
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from autoscaler.domain.errors import NotAllowed, Unavailable
from autoscaler.wire.client import Client


def state_directory() -> Path:
    """The state directory of a controller of ours: CASTOR_STATE, or ~/.castor."""
    return Path(os.environ.get("CASTOR_STATE") or Path.home() / ".castor")


def connect(state: Path | None = None) -> Client:
    """A client of the controller that CASTOR_URL and CASTOR_TOKEN name, or that serves here.

    Raises:
        Unavailable, NotAllowed: as `address_and_token`.
    """
    return Client(*address_and_token(state))


def is_loopback(url: str) -> bool:
    """Return whether a URL names the machine that asks."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def address_and_token(state: Path | None = None) -> tuple[str, str]:
    """Where the controller is that CASTOR_URL and CASTOR_TOKEN name, or that serves here.

    Raises:
        Unavailable: there is none that we know of.
        NotAllowed: its token can't be read.
    """
    url, token = os.environ.get("CASTOR_URL"), os.environ.get("CASTOR_TOKEN")
    if state is None and url and token:
        return url, token
    path = (state or state_directory()) / "client.json"
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        raise Unavailable(
            f"no controller is known: {path} is missing. Start one with `castor serve`, or set "
            "CASTOR_URL and CASTOR_TOKEN"
        ) from None
    except OSError as error:
        raise NotAllowed(f"{path}: {error.strerror}: set CASTOR_URL and CASTOR_TOKEN") from None
    return url or known["url"], token or known["token"]
