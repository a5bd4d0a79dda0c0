"""Saves: copies of a restartable job's checkpoints that outlive its instances.

The instance that leads the job's world copies each new match of the checkpoint pattern. Before a
start of the world, its leader chooses the newest save and records the choice; all instances then
bring their working directory to that save. A save counts once its manifest is written, after its
files. Labels sort by job, by start of the world, and by number, so that a former leader which
still writes can't replace the choice of a later start.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoscaler.domain.errors import NotFound, SpecError, Unavailable
from autoscaler.domain.output import is_output_path
from autoscaler.domain.rules import require_at_most, require_count, require_sha256
from autoscaler.domain.text import quoted
from autoscaler.files_below import FileStamp, copy_below, open_below, remove_below, stamp_of
from autoscaler.node.restarts.matches import Match, Pattern
from autoscaler.node.restarts.save_place import SavePlace
from autoscaler.wire.codec import decode, encode

_SAVES: Final = "saves"
_STARTS: Final = "starts"
_MANIFEST: Final = ".json"
_MOST_FILES: Final = 10_000
_MOST_BYTES: Final = 1 << 60
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SavedFile:
    """One file of a save: path below the working directory, size, SHA-256 and time of change."""

    path: str
    bytes: int
    sha256: str
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Save:
    """Copy of one match under a `label`."""

    label: str
    match: str
    files: tuple[SavedFile, ...]

    @property
    def modified_ns(self) -> int:
        """Time of the last change of one of the files, in nanoseconds since the Unix epoch."""
        return max((file.modified_ns for file in self.files), default=0)

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class StartChoice:
    """Label of the save from which one start of the world begins; None for the beginning."""

    label: str | None


@dataclass(frozen=True, slots=True)
class StartName:
    """Name of one start of a job's world. Jobs that resume others have larger numbers."""

    job_number: int
    generation: int

    def __str__(self) -> str:
        return f"{self.job_number:010d}-{self.generation:010d}"


class Changed(Exception):
    """Change of a match while it was copied."""


class Saves:
    """Saves of one job in a place; `staging` is a directory for files in transfer."""

    def __init__(self, place: SavePlace, staging: Path) -> None:
        self._place = place
        self._staging = staging

    def labels(self) -> list[str]:
        """Return the labels of all complete saves, the newest last."""
        prefix = f"{_SAVES}/"
        names = (name.removeprefix(prefix) for name in self._place.names(_SAVES))
        return [
            name.removesuffix(_MANIFEST)
            for name in names
            if name.endswith(_MANIFEST) and "/" not in name
        ]

    def save(self, match: Match, root: Path, start: StartName, kept: int) -> Save:
        """Copy a match to the place; delete all but the newest `kept` saves and the chosen one.

        Raises:
            Changed: the match changed meanwhile; nothing counts as saved.
            ProviderError, OSError: the place can't be written, or a file can't be read.
        """
        if len(match.files) > _MOST_FILES:
            raise OSError(f"{match.name} has {len(match.files):,} files, above {_MOST_FILES:,}")
        labels = self.labels()
        number = sum(label.startswith(f"{start}-") for label in labels)
        while (label := f"{start}-{number:010d}") in labels:
            number += 1
        files = tuple(
            self._copy(file, root, f"{_SAVES}/{label}/{index}")
            for index, file in enumerate(match.files)
        )
        save = Save(label, match.name, files)
        self._place.put(f"{_SAVES}/{label}{_MANIFEST}", encode(Save, save))
        self._remove_all_but({*[*labels, label][-kept:], self._last_choice()})
        return save

    def newest(self) -> str | None:
        """Return the label of the newest save; None if there is none."""
        return max(self.labels(), default=None)

    def read(self, label: str) -> Save:
        """Return a save.

        Raises:
            NotFound: there is no such save.
            SpecError: the save is not valid; a job may have written it.
        """
        return require_sound_save(
            decode(Save, self._place.get(f"{_SAVES}/{label}{_MANIFEST}")), label
        )

    def choose(self, start: StartName) -> StartChoice:
        """Record the newest save as the one of this start, unless a choice is recorded."""
        try:
            return self.chosen(start)
        except NotFound:
            choice = StartChoice(self.newest())
            earlier = self._place.names(_STARTS)
            self._place.put(_start_file(start), encode(StartChoice, choice))
            self._place.remove(earlier)
            return choice

    def chosen(self, start: StartName) -> StartChoice:
        """Return the recorded choice of a start.

        Raises:
            NotFound: the leader has not chosen yet.
        """
        return decode(StartChoice, self._place.get(_start_file(start)))

    def _last_choice(self) -> str | None:
        """Return the label of the save from which the last start began; None for none."""
        names = self._place.names(_STARTS)
        return decode(StartChoice, self._place.get(names[-1])).label if names else None

    def restore(self, label: str | None, pattern: Pattern, user: int, since_ns: int) -> None:
        """Bring the matches below the root of `pattern` to a save; None is the beginning.

        Matches later than the save are of an abandoned run and are deleted, unless they are from
        before `since_ns`, when the job's files were laid out. Files of the save that are there
        already are kept.

        Raises:
            ProviderError, OSError, SpecError: the save can't be read or written.
        """
        save = None if label is None else self.read(label)
        least_ns = since_ns if save is None else max(save.modified_ns, since_ns)
        for match in pattern.matches():
            is_saved = save is not None and match.name == save.match
            if match.modified_ns > least_ns and not is_saved:
                remove_match(pattern.root, match.name)
        if save is None:
            return
        if not _is_there(save, pattern.matches()):
            remove_match(pattern.root, save.match)
            for index, file in enumerate(save.files):
                self._fetch(file, pattern.root, f"{_SAVES}/{save.label}/{index}", user)

    def _copy(self, file: FileStamp, root: Path, name: str) -> SavedFile:
        staged = self._staged()
        digest = hashlib.sha256()
        try:
            descriptor = open_below(root, file.path)
        except FileNotFoundError as error:
            raise Changed(file.path) from error
        with os.fdopen(descriptor, "rb") as source, staged.open("wb") as copy:
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                copy.write(chunk)
            if stamp_of(descriptor, file.path) != file:
                raise Changed(file.path)
        self._place.put(name, staged)
        staged.unlink()
        return SavedFile(file.path, file.bytes, digest.hexdigest(), file.modified_ns)

    def _fetch(self, file: SavedFile, root: Path, name: str, user: int) -> None:
        staged = self._staged()
        self._place.download(name, staged)
        with staged.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        if sha256 != file.sha256:
            raise Unavailable(f"{name} is damaged: its SHA-256 differs; it is fetched again")
        copy_below(root, FileStamp(file.path, file.bytes, file.modified_ns, user), staged)
        staged.unlink()

    def _staged(self) -> Path:
        self._staging.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._staging / "file"

    def _remove_all_but(self, kept: Collection[str | None]) -> None:
        """Delete all saves but those with the labels in `kept`; the manifests first."""
        dropped = [label for label in self.labels() if label not in kept]
        self._place.remove([f"{_SAVES}/{label}{_MANIFEST}" for label in dropped])
        prefix = f"{_SAVES}/"
        files = (name for name in self._place.names(_SAVES) if not name.endswith(_MANIFEST))
        self._place.remove(
            [name for name in files if name.removeprefix(prefix).partition("/")[0] not in kept]
        )


def remove_match(root: Path, name: str) -> None:
    """Delete a match below `root`; one that does not exist is ignored.

    Raises:
        OSError: the match can't be deleted, or a part of its path is a link.
    """
    *folders, last = name.split("/")
    try:
        remove_below(root, folders, lambda entry: entry == last)
    except FileNotFoundError:
        return


def require_sound_save(save: Save, label: str) -> Save:
    """Return a save after checking all its values.

    Raises:
        SpecError: a path, size or hash is invalid; the message names it.
    """
    if save.label != label:
        raise SpecError(f"the save {quoted(label)} has the label {quoted(save.label)}")
    require_at_most(len(save.files), "files", _MOST_FILES)
    for file in save.files:
        is_within = file.path == save.match or file.path.startswith(f"{save.match}/")
        if not (is_output_path(file.path) and is_within):
            raise SpecError(f"{quoted(file.path)} leads out of {quoted(save.match)}")
        require_sha256(file.sha256)
        require_count(file.bytes, "bytes", _MOST_BYTES, least=0)
        require_count(file.modified_ns, "modified_ns", 1 << 62, least=0)
    return save


def _is_there(save: Save, matches: Sequence[Match]) -> bool:
    """Return whether the working directory has the save's files, by size and time of change."""
    saved = {(file.path, file.bytes, file.modified_ns) for file in save.files}
    return any(
        {(file.path, file.bytes, file.modified_ns) for file in match.files} == saved
        for match in matches
        if match.name == save.match
    )


def _start_file(start: StartName) -> str:
    return f"{_STARTS}/{start}{_MANIFEST}"
