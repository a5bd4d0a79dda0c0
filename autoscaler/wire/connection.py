"""Address and token of the controller: of the environment, a login or a state directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from autoscaler.domain.errors import NotAllowed, SpecError, Unavailable

if TYPE_CHECKING:  # controllers import this module, and no client
    from autoscaler.wire.client import Client, StudyClient
    from autoscaler.wire.login_client import LoginClient


class Address(NamedTuple):
    """Controller's URL, a token, and the file of the only certificates to trust (None: usual)."""

    url: str
    token: str
    authority: Path | None = None

    def client(self) -> Client:
        """Return a client. `SpecError`: the file can't be read."""
        from autoscaler.wire.client import Client

        return Client(self.url, self.token, authority=self._authority_text())

    def login_client(self) -> LoginClient:
        """Return a client for a login, without the token. `SpecError`: the file can't be read."""
        from autoscaler.wire.login_client import LoginClient

        return LoginClient(self.url, authority=self._authority_text())

    def study_client(self, study: str) -> StudyClient:
        """Return a client for a study. `SpecError`: the file can't be read."""
        from autoscaler.wire.client import StudyClient

        return StudyClient(self.url, self.token, study, authority=self._authority_text())

    def _authority_text(self) -> str | None:
        if self.authority is None:
            return None
        try:
            return self.authority.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise SpecError(
                f"{self.authority}: {reason}: name the file of the controller's certificate",
                "CASTOR_CA",
            ) from None


def state_directory() -> Path:
    """Return the state directory of a local controller: CASTOR_STATE, or ~/.castor."""
    return Path(os.environ.get("CASTOR_STATE") or Path.home() / ".castor")


def connect(state: Path | None = None) -> Client:
    """Return a client of the controller of CASTOR_URL and CASTOR_TOKEN, or of the local one.

    Raises:
        Unavailable, NotAllowed: as `address_and_token`.
    """
    return address_and_token(state).client()


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine by a loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_private(url: object) -> bool:
    """Return whether nobody on a network can read what is sent to a URL: HTTPS, or loopback."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        is_local = parts.scheme == "http" and is_loopback(url)
        return bool(parts.hostname) and (parts.scheme == "https" or is_local)
    except ValueError:
        return False


def address_and_token(state: Path | None = None) -> Address:
    """Return the address of the controller that is meant, and a token for it.

    The variables CASTOR_URL and CASTOR_TOKEN come first, then a state directory that CASTOR_STATE
    names, then the login of `castor login`, then the state directory ~/.castor. A variable that is
    set alone replaces that part. A login is used for its own controller only, and not with
    CASTOR_TOKEN.

    Args:
        state: state directory to read, whatever the variables and the login say, because its
            controller is meant; None: all of them.

    Raises:
        Unavailable: there are no variables and no login, and the state directory has no
            controller's file.
        NotAllowed: a file can't be read.
    """
    variables: Mapping[str, str] = os.environ if state is None else {}
    url, token = variables.get("CASTOR_URL"), variables.get("CASTOR_TOKEN")
    authority = variables.get("CASTOR_CA")
    if url and token:
        return Address(url, token, Path(authority) if authority else None)
    if state is None and not token and not variables.get("CASTOR_STATE"):
        login = saved_login()
        if login is not None and login.is_for(url):
            return login.address(url, authority)
    path = (state or state_directory()) / "client.json"
    try:
        saved = json.loads(path.read_text())
    except FileNotFoundError:
        raise Unavailable(
            f"no controller found: {path} is missing. Start one with `castor serve`, log in with "
            "`castor login URL`, or set CASTOR_URL and CASTOR_TOKEN"
        ) from None
    except OSError as error:
        raise NotAllowed(f"{path}: {error.strerror}: set CASTOR_URL and CASTOR_TOKEN") from None
    authority = authority or saved.get("authority")
    return Address(
        url or saved["url"], token or saved["token"], Path(authority) if authority else None
    )


class SavedLogin(NamedTuple):
    """Login of `castor login`: controller, person, and the token with its name.

    `authority` is the file of the only certificates to trust; None: usual.
    """

    url: str
    person: str
    name: str
    token: str
    authority: str | None = None

    def is_for(self, url: str | None) -> bool:
        """Return whether CASTOR_URL, None if not set, names this login's controllers only."""
        return not url or _urls(url) <= _urls(self.url)

    def address(self, url: str | None = None, authority: str | None = None) -> Address:
        """Return the address, with the values of CASTOR_URL and CASTOR_CA where they are set."""
        file = authority or self.authority
        return Address(url or self.url, self.token, Path(file) if file else None)


def login_file() -> Path:
    """Return the file of the login, in the user's directory for configuration."""
    directory = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(directory) / "castor" / "login.json"


def saved_login() -> SavedLogin | None:
    """Return the login of `castor login`; None if there is none.

    Raises:
        NotAllowed: the file can't be read, or is none.
    """
    path = login_file()
    try:
        login = SavedLogin(**json.loads(path.read_text()))
        if not all(isinstance(value or "", str) for value in login):
            raise ValueError("a field is no text")
        return login
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it is not what castor login wrote"
        raise NotAllowed(f"{path}: {reason}: remove it, and run castor login again") from None


def _urls(text: str) -> set[str]:
    """Return the URLs of controllers in a text with commas between them."""
    return {part.strip().rstrip("/") for part in text.split(",")}
