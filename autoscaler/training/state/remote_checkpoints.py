"""Remote checkpoint store of a job in object storage, which outlives the instance's disk.

A checkpoint counts once its manifest is present; the manifest is uploaded last. A checkpoint that
does not match its manifest is set aside: the manifest is renamed and nothing is deleted.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from autoscaler.domain.checkpoint import MANIFEST, RECORD, step_of
from autoscaler.domain.errors import NotFound, ProviderError
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

    def keep(self, path: Path) -> None:
        """Upload the checkpoint in the directory `path`, unless the same one is present.

        A checkpoint of the same step with other content is replaced. During the upload neither
        counts.

        Raises:
            OSError: the local checkpoint can't be read.
        """
        present = self.manifest(path.name)
        if present == (path / MANIFEST).read_bytes():
            return
        if present is not None:
            self._objects.remove([f"{path.name}/{MANIFEST}"])
        for file in sorted(path.iterdir()):
            if file.name != MANIFEST:
                self._objects.put(f"{path.name}/{file.name}", file)
        self._objects.put(f"{path.name}/{MANIFEST}", path / MANIFEST)

    def fetch(self, name: str, directory: Path) -> None:
        """Download a checkpoint to the new directory `directory`.

        Raises:
            OSError: the directory can't be written.
        """
        directory.mkdir(parents=True)
        for stored in self._objects.listed(name):
            with suppress(NotFound):  # verifying the manifest finds missing files
                self._objects.download(stored.name, directory / Path(stored.name).name)

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
