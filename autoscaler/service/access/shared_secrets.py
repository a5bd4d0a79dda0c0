"""Secrets that all controllers of a store have in common: the signing key, the owner's token.

They are files of the state directory, and not in the store: who can only read the store, or a
backup of it, must not be able to sign as its controller. The store has their hashes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from autoscaler.domain.access import OWNER
from autoscaler.domain.errors import Conflict, NotAllowed
from autoscaler.service.access.people import PeopleAccess
from autoscaler.store.repositories.settings import Settings

_KEY: Final = "signing key"


def require_same_key(settings: Settings, key: bytes, state: Path, replaces: bool = False) -> None:
    """Check that a leader has the signing key of the store's earlier controllers.

    The first leader, and one that `replaces` the key, set it.

    Raises:
        Conflict: it has another key.
    """
    digest = _digest(key)
    if replaces:
        settings.replace(_KEY, digest)
        return
    _require_equal(settings.once(_KEY, lambda: digest), digest, state)


def require_shared_secrets(
    settings: Settings, people: PeopleAccess, key: bytes, token: str | None, state: Path
) -> None:
    """Check that a follower has the secrets of its store; it writes none.

    `token` is the owner's in the state directory, None without one.

    Raises:
        Conflict: its state directory has another key, or not the owner's token.
    """
    _require_equal(settings.known(_KEY), _digest(key), state)
    try:
        is_owner = token is not None and people.identity(token).person == OWNER
    except NotAllowed:
        is_owner = False
    if not is_owner:
        raise Conflict(
            f"{state}/client.json has not the owner's token of the store: copy the file from the "
            "state directory of the controller that leads, mode 0600"
        )


def _digest(key: bytes) -> str:
    return hashlib.sha256(b"castor signing key\n" + key).hexdigest()


def _require_equal(known: str | None, digest: str, state: Path) -> None:
    if known != digest:
        raise Conflict(
            f"{state}/secret.key is not the signing key of the store's controllers, which running "
            "instances need: copy the file from their state directory, mode 0600; or, if it is "
            "lost, start with --new-key"
        )
