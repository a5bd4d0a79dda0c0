"""Manifest of a backup: what it holds, of which deployment, as of when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
STORE: Final = "castor.db"


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
