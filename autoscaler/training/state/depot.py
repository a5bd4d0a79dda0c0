"""The depot of a job: its checkpoints in a cloud's storage, which outlive the instance's disk.

A checkpoint is there once its manifest is, which is written after all else of it. One that does
not match its manifest is set aside: the manifest gets another name, and nothing is deleted.
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


class Depot:
    """Checkpoints under one place. Every method raises as those of `Objects` do."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    @property
    def place(self) -> str:
        """Where they are."""
        return self._objects.place

    def names(self) -> list[str]:
        """The checkpoints that are whole, the newest first."""
        return self._sorted()[0]

    def manifest(self, name: str) -> bytes | None:
        """The manifest of a checkpoint; None if that is not there, or not as a whole."""
        try:
            return self._objects.get(f"{name}/{MANIFEST}")
        except NotFound:
            return None

    def record(self) -> bytes | None:
        """Return the record of whose checkpoints these are; None if there is none."""
        try:
            return self._objects.get(RECORD)
        except NotFound:
            return None

    def set_record(self, record: bytes) -> None:
        """Write down whose checkpoints these are."""
        self._objects.put(RECORD, record)

    def keep(self, path: Path) -> None:
        """Let the checkpoint in the directory `path` be here, too.

        One of the same step and other content is replaced: it does not count meanwhile.

        Raises:
            OSError: it can't be read.
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
        """Let the new directory `directory` hold what is here of a checkpoint.

        Raises:
            OSError: it can't be written.
        """
        directory.mkdir(parents=True)
        for found in self._objects.listed(name):
            with suppress(NotFound):  # what is missing is found out by the manifest
                self._objects.download(found.name, directory / Path(found.name).name)

    def set_aside(self, name: str) -> None:
        """Let a checkpoint count no more."""
        manifest = self.manifest(name)
        if manifest is not None:
            self._objects.put(f"{name}/{_SET_ASIDE}", manifest)
            self._objects.remove([f"{name}/{MANIFEST}"])

    def prune(self, kept: int) -> None:
        """Remove all but the newest `kept`, and what was left half-written before them."""
        whole, partial = self._sorted()
        for name in whole[kept:]:
            self._objects.remove([f"{name}/{MANIFEST}"])
        older = [name for name in partial if whole and name < whole[0]]
        for name in (*whole[kept:], *older):
            self._objects.remove(found.name for found in self._objects.listed(name))

    def prune_if_possible(self, kept: int) -> None:
        """As `prune`; what can't be removed now is removed another time."""
        try:
            self.prune(kept)
        except ProviderError as error:
            _log.warning("old checkpoints stay where they are for now: %s", error)

    def _sorted(self) -> tuple[list[str], list[str]]:
        """Checkpoints that are whole and those that are not yet, the newest first of each."""
        files: dict[str, set[str]] = {}
        for found in self._objects.listed():
            name, _, file = found.name.partition("/")
            if step_of(name) is not None:
                files.setdefault(name, set()).add(file)
        names = sorted(files, reverse=True)
        whole = [name for name in names if MANIFEST in files[name]]
        partial = [name for name in names if not files[name] & {MANIFEST, _SET_ASIDE}]
        return whole, partial
