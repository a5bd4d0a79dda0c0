"""Files of a controller's state directory: lock, database, and address and token for clients."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from autoscaler.domain.errors import CastorError, Conflict, StoreError
from autoscaler.supervision import LOCK_FILE

CLIENT_FILE = "client.json"
DATABASE_FILE = "castor.db"


def store_url_of(state: Path, given: str | None) -> str:
    """Return the URL of a controller's store: the given one, or the database in `state`."""
    return given or f"sqlite:///{state / DATABASE_FILE}"


@contextlib.contextmanager
def hold_state(state: Path) -> Iterator[None]:
    """Lock the state directory while the context lasts; a dead process leaves no lock behind.

    A new directory is removed again if the context raises `CastorError` before it wrote a file.

    Raises:
        Conflict: another controller runs on the directory.
        StoreError: the directory can't be written.
    """
    is_new = not state.exists()
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        opened = (state / LOCK_FILE).open("w")
    except OSError as error:
        raise StoreError(
            f"state: {state} can't be written ({error.strerror}): choose another --state"
        ) from None
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(
                f"another controller runs on {state}: stop it, or choose another --state"
            ) from None
        try:
            yield
        except CastorError:
            if is_new and [path.name for path in state.iterdir()] == [LOCK_FILE]:
                (state / LOCK_FILE).unlink()
                state.rmdir()
            raise


def port_before(state: Path) -> int | None:
    """Return the API's port at the last run, which agents still use; None if unknown."""
    with contextlib.suppress(ValueError):  # the URL has an invalid port
        return urlsplit(_client_file(state).get("url", "")).port
    return None


def served_url(state: Path) -> str | None:
    """Return the address at which the API was last served; None if unknown."""
    return _client_file(state).get("url")


def _client_file(state: Path) -> Mapping[str, str]:
    """Return the fields that the last run wrote for its clients; empty if unreadable."""
    with contextlib.suppress(OSError, ValueError):
        fields = json.loads((state / CLIENT_FILE).read_text())
        return fields if isinstance(fields, dict) else {}
    return {}


def owner_token(state: Path) -> str | None:
    """Return the owner's token of the last run; None if there is none."""
    return _client_file(state).get("token")


def saved_authority(state: Path) -> Path | None:
    """Return the file of the certificates that clients of the last run trust; None: the usual."""
    saved = _client_file(state).get("authority")
    return None if saved is None else Path(saved)


def let_owner_in(state: Path, url: str, authority: Path | None = None) -> str:
    """Write the API's address and the owner's token to a file that only the owner can read.

    `authority` is the file of the only certificates that clients trust; None: those of the system.

    Returns:
        The token of the last run, or a new one.
    """
    path = state / CLIENT_FILE
    token = owner_token(state) or secrets.token_urlsafe(32)
    trusted = {} if authority is None else {"authority": str(authority)}
    write_private(path, json.dumps({"url": url, "token": token, **trusted}).encode())
    return token


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read; it appears whole or not at all."""
    partial = path.with_name(f".{path.name}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)
