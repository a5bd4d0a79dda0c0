"""Archive of a backup: a tar file whose last member is the manifest."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Final

from pydantic import TypeAdapter

from autoscaler.backup.manifest import FORMAT, MANIFEST, BackupMember, Manifest, require_sound
from autoscaler.domain.errors import SpecError, StoreError
from autoscaler.domain.paths import inside, relative_names
from autoscaler.domain.text import printable, quoted
from autoscaler.store.records.documents import decode, encode

_CHUNK_BYTES: Final = 1 << 20
_MOST_MANIFEST_BYTES: Final = 256 << 20
_OWNER_ONLY: Final = 0o600
_LONGEST_PROBLEM: Final = 500


def write_archive(
    file: Path,
    contents: Mapping[str, Path],
    manifest: Callable[[Mapping[str, BackupMember]], Manifest],
) -> Manifest:
    """Write files by name to a new archive, which appears whole or not at all.

    A file that has been deleted since it was named is left out: a controller deletes files of
    trials and old logs meanwhile. The archive is read and verified before it gets its name. Only
    its owner can read it.

    Raises:
        StoreError: the archive exists, can't be written, or reads back differently.
    """
    if file.exists():
        raise StoreError(f"{file} exists: name another file")
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as written:
            with tarfile.open(fileobj=written, mode="w") as archive:
                members = {}
                for name, path in contents.items():
                    with suppress(FileNotFoundError):
                        members[name] = _add(archive, name, path)
                made = manifest(members)
                _add_text(archive, MANIFEST, encode(made))
            written.flush()
            os.fsync(written.fileno())
        if read_archive(partial) != made:
            raise StoreError(f"{file} reads back differently: check its disk, and try again")
        os.link(partial, file)  # unlike a rename, this fails if the file exists by now
    except OSError as error:
        raise StoreError(f"{file} can't be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return made


def read_archive(file: Path, directory: Path | None = None) -> Manifest:
    """Verify an archive and return its manifest; extract its files to `directory` if given.

    Raises:
        StoreError: the file is no backup, is of a newer format, or is damaged; the message names
            the damaged member.
    """
    members: dict[str, BackupMember] = {}
    text: bytes | None = None
    with _opened(file) as archive:
        for entry in _entries(archive):
            content = archive.extractfile(entry) if entry.isreg() else None
            if content is None or text is not None or entry.name in members:
                raise _damaged(file, f"unexpected member {quoted(entry.name)}")
            if entry.name == MANIFEST:
                text = _read_all(file, entry, content)
            else:
                members[entry.name] = _extract(file, entry, content, directory)
    if text is None:
        raise _damaged(file, "it ends before its manifest")
    return _checked(file, text, members)


def _checked(file: Path, text: bytes, members: Mapping[str, BackupMember]) -> Manifest:
    try:
        manifest = decode(TypeAdapter(Manifest), text)
        require_sound(manifest)
    except (StoreError, SpecError) as error:
        raise _damaged(file, f"its manifest can't be read ({error})") from error
    if manifest.format > FORMAT:
        raise StoreError(
            f"{file} has format {manifest.format}, and this Castor reads formats up to {FORMAT}: "
            f"install Castor {manifest.castor}"
        )
    for name in sorted(members.keys() | manifest.members.keys()):
        if members.get(name) != manifest.members.get(name):
            raise _damaged(file, f"{quoted(name, 200)} is not what its manifest says")
    return manifest


@contextmanager
def _opened(file: Path) -> Iterator[tarfile.TarFile]:
    try:
        with file.open("rb") as content:
            with _header_errors():
                opened = tarfile.open(fileobj=content, mode="r:")  # noqa: SIM115  # closed below
            with opened as archive:
                yield archive
    except FileNotFoundError as error:
        raise StoreError(f"{file}: no such file: name a file of castor backup") from error
    except IsADirectoryError as error:
        raise StoreError(f"{file} is a directory: name a file of castor backup") from error
    except tarfile.TarError as error:
        raise StoreError(f"{file} is no backup of Castor, or is damaged: {error}") from error


def _entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an archive.

    Raises:
        tarfile.TarError: a header is damaged.
    """
    with _header_errors():
        yield from archive


@contextmanager
def _header_errors() -> Iterator[None]:
    """Raise errors of numbers in extended headers, which tarfile lets pass, as its own."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise tarfile.ReadError("a header has no valid number") from error


def _add(archive: tarfile.TarFile, name: str, path: Path) -> BackupMember:
    """Add a file as it is now: what is appended meanwhile is left out."""
    hashed = hashlib.sha256()
    with path.open("rb") as content:
        entry = _entry(name, os.fstat(content.fileno()).st_size)
        archive.addfile(entry, _Hashing(content, hashed.update))
    return BackupMember(entry.size, hashed.hexdigest())


def _add_text(archive: tarfile.TarFile, name: str, text: bytes) -> None:
    archive.addfile(_entry(name, len(text)), io.BytesIO(text))


def _entry(name: str, size_bytes: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size_bytes, _OWNER_ONLY
    return entry


class _Hashing(io.RawIOBase):
    """File whose parts are hashed as they are read."""

    def __init__(self, content: IO[bytes], update: Callable[[bytes], None]) -> None:
        self._content = content
        self._update = update

    def read(self, size: int = -1) -> bytes:
        """Return the next part."""
        part = self._content.read(size)
        self._update(part)
        return part


def _extract(
    file: Path, entry: tarfile.TarInfo, content: IO[bytes], directory: Path | None
) -> BackupMember:
    """Hash a member, and write it below `directory` if one is given."""
    hashed, size_bytes = hashlib.sha256(), 0
    try:
        path = inside(PurePosixPath(), *relative_names(entry.name, "member"))
    except SpecError as error:
        raise _damaged(file, f"member {error}") from error
    target = Path(os.devnull)
    if directory is not None:
        target = directory / path
        for parent in reversed(path.parents):
            (directory / parent).mkdir(exist_ok=True, mode=0o700)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OWNER_ONLY))
    with target.open("wb") as written:
        while part := content.read(_CHUNK_BYTES):
            hashed.update(part)
            size_bytes += len(part)
            written.write(part)
        if directory is not None:
            written.flush()
            os.fsync(written.fileno())
    if size_bytes != entry.size:
        raise _damaged(file, f"it ends within {entry.name}")
    return BackupMember(size_bytes, hashed.hexdigest())


def _read_all(file: Path, entry: tarfile.TarInfo, content: IO[bytes]) -> bytes:
    text = content.read(_MOST_MANIFEST_BYTES)
    if len(text) != entry.size:
        raise _damaged(file, f"it ends within {entry.name}")
    return text


def _damaged(file: Path, problem: str) -> StoreError:
    shown = printable(problem[:_LONGEST_PROBLEM])
    return StoreError(f"{file} is damaged: {shown}; use another backup")
