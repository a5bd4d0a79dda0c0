"""Remote checkpoint store of a job in object storage, which outlives the instance's disk.

A checkpoint counts once its manifest is present; the manifest is uploaded last. A checkpoint that
does not match its manifest is set aside: the manifest is renamed and nothing is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from autoscaler.domain.checkpoint import MANIFEST, RECORD, step_of
from autoscaler.domain.errors import NotFound, ProviderError
from autoscaler.domain.transfer import Transfer
from autoscaler.objects import Objects

_log = logging.getLogger(__name__)

_SET_ASIDE: Final = "manifest.json.corrupt"


class RemoteCheckpoints:
    """Checkpoints below one remote location. Methods raise the errors of `Objects`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @property
    def place(self) -> str:
        """Location of the store, as messages show it."""
        return self._objects.place

    def names(self) -> list[str]:
        """Return the names of the whole checkpoints, newest first."""
        return self._whole_and_partial()[0]

    def manifest(self, name: str) -> bytes | None:
        """Return the manifest of a checkpoint; None if the checkpoint is missing or incomplete."""
        try:
            return self._objects.get(f"{name}/{MANIFEST}")
        except NotFound:
            return None

    def record(self) -> bytes | None:
        """Return the ownership record of the checkpoints; None if there is none."""
        try:
            return self._objects.get(RECORD)
        except NotFound:
            return None

    def set_record(self, record: bytes) -> None:
        """Write the ownership record of the checkpoints."""
        self._objects.put(RECORD, record)

    def has(self, name: str, manifest: bytes) -> bool:
        """Return whether the store has a checkpoint with this manifest.

        One of the same name with another manifest no longer counts afterwards, so that its files
        can be replaced.
        """
        present = self.manifest(name)
        if present is not None and present != manifest:
            self._objects.remove([f"{name}/{MANIFEST}"])
        return present == manifest

    def upload(self, path: Path, names: Iterable[str]) -> Transfer:
        """Upload files of the checkpoint in the directory `path`; return the bytes sent.

        The checkpoint counts once its manifest is uploaded, which must follow all other files.

        Raises:
            OSError: a local file can't be read.
        """
        before = self.transferred
        for name in sorted(names):
            self._objects.put(f"{path.name}/{name}", path / name)
        return self.transferred.beyond(before)

    @property
    def transferred(self) -> Transfer:
        """Bytes counted so far."""
        return self._objects.meter.read().transfer

    def count(self, transfer: Transfer) -> None:
        """Count bytes that another process transferred."""
        self._objects.meter.add(transfer)

    def download(self, name: str, file: str, target: Path) -> None:
        """Download a file of a checkpoint to `target`.

        Raises:
            NotFound: the store does not have the file.
            OSError: the target can't be written.
        """
        self._objects.download(f"{name}/{file}", target)

    def set_aside(self, name: str) -> None:
        """Rename a checkpoint's manifest, so that the checkpoint no longer counts."""
        manifest = self.manifest(name)
        if manifest is not None:
            self._objects.put(f"{name}/{_SET_ASIDE}", manifest)
            self._objects.remove([f"{name}/{MANIFEST}"])

    def prune(self, kept: int) -> None:
        """Remove all but the newest `kept` checkpoints, and partial ones older than the newest."""
        whole, partial = self._whole_and_partial()
        for name in whole[kept:]:
            self._objects.remove([f"{name}/{MANIFEST}"])
        abandoned = [name for name in partial if whole and name < whole[0]]
        for name in (*whole[kept:], *abandoned):
            self._objects.remove(stored.name for stored in self._objects.listed(name))

    def prune_if_possible(self, kept: int) -> None:
        """Prune as `prune` does; log an error of the storage and leave the rest for later."""
        try:
            self.prune(kept)
        except ProviderError as error:
            _log.warning("old checkpoints are not removed yet: %s", error)

    def _whole_and_partial(self) -> tuple[list[str], list[str]]:
        """Return the names of whole and of partial checkpoints, each newest first."""
        files: dict[str, set[str]] = {}
        for stored in self._objects.listed():
            name, _, file = stored.name.partition("/")
            if step_of(name) is not None:
                files.setdefault(name, set()).add(file)
        names = sorted(files, reverse=True)
        whole = [name for name in names if MANIFEST in files[name]]
        partial = [name for name in names if not files[name] & {MANIFEST, _SET_ASIDE}]
        return whole, partial
