"""Address and token of the controller."""

from __future__ import annotations

import json
import os
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from autoscaler.domain.errors import NotAllowed, Unavailable
from autoscaler.wire.client import Client


def state_directory() -> Path:
    """Return the state directory of a local controller: CASTOR_STATE, or ~/.castor."""
    return Path(os.environ.get("CASTOR_STATE") or Path.home() / ".castor")


def connect(state: Path | None = None) -> Client:
    """Return a client of the controller of CASTOR_URL and CASTOR_TOKEN, or of the local one.

    Raises:
        Unavailable, NotAllowed: as `address_and_token`.
    """
    return Client(*address_and_token(state))


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine by a loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def address_and_token(state: Path | None = None) -> tuple[str, str]:
    """Return URL and token from CASTOR_URL and CASTOR_TOKEN, or from the state directory.

    Args:
        state: state directory to read instead of the variables; None: both, variables first.

    Raises:
        Unavailable: there are no variables, and the state directory has no controller's file.
        NotAllowed: the file can't be read.
    """
    url, token = os.environ.get("CASTOR_URL"), os.environ.get("CASTOR_TOKEN")
    if state is None and url and token:
        return url, token
    path = (state or state_directory()) / "client.json"
    try:
        saved = json.loads(path.read_text())
    except FileNotFoundError:
        raise Unavailable(
            f"no controller found: {path} is missing. Start one with `castor serve`, or set "
            "CASTOR_URL and CASTOR_TOKEN"
        ) from None
    except OSError as error:
        raise NotAllowed(f"{path}: {error.strerror}: set CASTOR_URL and CASTOR_TOKEN") from None
    return url or saved["url"], token or saved["token"]
