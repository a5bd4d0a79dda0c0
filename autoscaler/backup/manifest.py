"""Manifest of a backup: what it holds, of which deployment, as of when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import has_controls, quoted

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
STORE: Final = "castor.db"

_LATEST_SECONDS: Final = 253_402_300_799.0  # the end of the year 9999
_LONGEST_TEXT: Final = 1_000


@dataclass(frozen=True, slots=True)
class BackupMember:
    """Size and SHA-256 of one file of a backup."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Last member of a backup, which names all others.

    Attributes:
        format: version of the archive's format.
        castor: release that wrote the backup.
        version: version of the store's tables.
        made_seconds: time as of which the store was copied.
        controller: id of the controller; its instances are tagged with it.
        url: address at which agents reach the controller; None if it never served.
        members: files by name, relative to the state directory.
    """

    format: int
    castor: str
    version: str
    made_seconds: float
    controller: str
    url: str | None
    members: Mapping[str, BackupMember]


def require_sound(manifest: Manifest) -> None:
    """Check the values of a manifest of unknown origin.

    Raises:
        SpecError: a value can't be that of a backup; `field` is its key.
    """
    if not 0.0 <= manifest.made_seconds <= _LATEST_SECONDS:
        raise SpecError(f"{quoted(manifest.made_seconds)} is no time", "made_seconds")
    texts = {name: getattr(manifest, name) for name in ("castor", "version", "controller", "url")}
    for name, text in texts.items():
        if text is not None and (has_controls(text) or len(text) > _LONGEST_TEXT):
            raise SpecError(f"{quoted(text)} is no text of one line", name)
    if STORE not in manifest.members:
        raise SpecError(f"{STORE} is missing", "members")
