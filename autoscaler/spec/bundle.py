"""Bundles: a working directory as one archive that is the same wherever it is packed.

An archive is a gzipped tar of regular files and relative links, sorted by name, without owners
or times. It is known by the hash of what it holds, so that compression can't change it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from pydantic import ByteSize

from autoscaler.domain.errors import Conflict, SpecError
from autoscaler.spec.tree import CASTOR_IGNORE, GIT_IGNORE, TreeFile, leaves, list_tree

DEFAULT_MAXIMUM_BYTES: Final = 100_000_000
_FILE_MODE: Final = 0o644
_EXECUTABLE_MODE: Final = 0o755
_CHUNK_BYTES: Final = 1 << 16
_LARGEST_READ_BYTES: Final = 1 << 20
_DAMAGES: Final = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    FileExistsError,
    NotADirectoryError,
)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What an archive holds: the hash of its names, modes and contents, their size and number."""

    sha256: str
    bytes: int
    files: int


def pack(
    directory: Path,
    destination: Path,
    ref: str | None = None,
    maximum_bytes: int = DEFAULT_MAXIMUM_BYTES,
) -> Bundle:
    """Pack a directory into the archive `destination`.

    Args:
        directory: the working directory. What its ignore files name stays out; a link inside it
            stays a link.
        destination: the archive to write; outside `directory`, or ignored there.
        ref: a commit, branch or tag: its version of the directory is packed instead of the files
            as they are. Submodules are not.
        maximum_bytes: the most that the files may hold, before compression.

    Raises:
        SpecError: too large, a link that leaves the directory, a file that can't be packed, no
            such commit.
    """
    if ref is None:
        return _pack_files(list_tree(directory), destination, maximum_bytes)
    with tempfile.TemporaryDirectory() as checkout:
        _check_out(directory, ref, Path(checkout))
        files = list_tree(Path(checkout), ignore_file=CASTOR_IGNORE)
        return _pack_files(files, destination, maximum_bytes)


def unpack(archive: Path, directory: Path, sha256: str) -> Bundle:
    """Unpack `archive` as the new `directory`: wholly, or not at all.

    Raises:
        SpecError: the archive is damaged, is not the one of this hash, or holds what no bundle
            does: absolute paths, ``..``, links that leave, devices.
        Conflict: `directory` exists.
        OSError: the archive can't be opened or the tree can't be written.
    """
    if directory.exists():
        raise Conflict(f"{directory} exists: remove it, or unpack elsewhere")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".unpack-") as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        bundle = _read(archive, tree)
        if bundle.sha256 != sha256:
            raise SpecError(
                f"{archive}: holds the bundle {bundle.sha256:.12}, not {sha256:.12}: "
                "it was changed or damaged; fetch it again"
            )
        tree.rename(directory)
    return bundle


def inspect(archive: Path, maximum_bytes: int) -> Bundle:
    """Return what an archive from an untrusted source holds, without writing any of it.

    Neither the unpacked size nor the memory that reading takes can exceed `maximum_bytes`.

    Raises:
        SpecError: the archive is damaged, too large, or holds what no bundle does.
        OSError: the archive can't be opened.
    """
    content = _Content()
    try:
        with gzip.open(archive) as unzipped:
            bounded = _BoundedReader(unzipped, maximum_bytes)
            with tarfile.open(fileobj=bounded, mode="r:") as entries:  # type: ignore[call-overload]
                for entry in entries:
                    _count(entries, entry, content)
    except _DAMAGES as error:
        raise SpecError(f"the bundle is damaged ({error}): pack it again") from error
    return content.bundle()


def require_files(bundle: Bundle, directory: Path) -> None:
    """Raise where files lie in a directory, and an ignore file keeps all of them out of a bundle.

    Raises:
        SpecError: so it is.
    """
    if bundle.files == 0 and any(directory.iterdir()):
        ignore_file = CASTOR_IGNORE if (directory / CASTOR_IGNORE).exists() else GIT_IGNORE
        raise SpecError(
            f"no file of {directory} would be packed: {ignore_file} ignores all of them. Name in "
            f"{CASTOR_IGNORE} only what the job does not need",
            "working_directory",
        )


def require_script(command: Sequence[str], directory: Path) -> None:
    """Raise where the script of a command lies in a directory, and no bundle would have it.

    Raises:
        SpecError: so it is.
    """
    script = next((word for word in command if word.endswith((".py", ".sh"))), None)
    if script is None or PurePosixPath(script).is_absolute() or not (directory / script).is_file():
        return
    name = os.path.normpath(script)
    if not name.startswith("..") and name not in {file.name for file in list_tree(directory)}:
        ignore_file = CASTOR_IGNORE if (directory / CASTOR_IGNORE).exists() else GIT_IGNORE
        raise SpecError(
            f"{script} would not be packed: the patterns of {ignore_file} leave it out. Remove "
            f"its pattern, or write a {CASTOR_IGNORE}, which then counts alone",
            "command",
        )


def _count(archive: tarfile.TarFile, entry: tarfile.TarInfo, content: _Content) -> None:
    if entry.isdir():
        return
    _safe_name(entry)
    source = None if entry.issym() else archive.extractfile(entry)
    if source is None:
        content.add_link(entry.name, entry.linkname)
        return
    reader = _HashingReader(source)
    while reader.read(_CHUNK_BYTES):
        pass
    content.add_file(entry, reader)


def _refuse_too_large(files: Sequence[TreeFile], maximum_bytes: int) -> None:
    total_bytes = sum(file.bytes for file in files)
    if total_bytes <= maximum_bytes:
        return
    sizes: Counter[str] = Counter()
    for file in files:
        folder, slash, _ = file.name.partition("/")
        sizes[folder + slash] += file.bytes
    largest = ", ".join(f"{name} ({_readable(size)})" for name, size in sizes.most_common(3))
    raise SpecError(
        f"the working directory holds {_readable(total_bytes)}, over the limit of "
        f"{_readable(maximum_bytes)}; largest are {largest}: name in {CASTOR_IGNORE} "
        "what the job does not need, or raise bundle_limit"
    )


def _readable(size_bytes: int) -> str:
    return ByteSize(size_bytes).human_readable(decimal=True)


def _pack_files(files: Sequence[TreeFile], destination: Path, maximum_bytes: int) -> Bundle:
    _refuse_too_large(files, maximum_bytes)
    partial = destination.with_name(f"{destination.name}.part")
    content = _Content()
    try:
        with (
            partial.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for file in files:
                _add(archive, file, content)
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
    return content.bundle()


def _add(archive: tarfile.TarFile, file: TreeFile, content: _Content) -> None:
    entry = tarfile.TarInfo(file.name)
    if file.link is not None:
        entry.type, entry.linkname = tarfile.SYMTYPE, file.link
        content.add_link(file.name, file.link)
        archive.addfile(entry)
        return
    entry.mode = _EXECUTABLE_MODE if file.is_executable else _FILE_MODE
    try:
        with file.path.open("rb") as source:
            entry.size = os.fstat(source.fileno()).st_size
            reader = _HashingReader(source)
            archive.addfile(entry, reader)
    except (FileNotFoundError, PermissionError) as error:
        raise SpecError(
            f"{file.path}: can't be read ({error.strerror}): name it in {CASTOR_IGNORE}"
        ) from error
    content.add_file(entry, reader)


def _check_out(directory: Path, ref: str, tree: Path) -> None:
    """Write the files that `directory` has in the commit `ref` below `tree`."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        arguments = ["--format=tar", f"--output={file.name}", "--end-of-options", ref]
        command = ["git", "-C", str(directory), "archive", *arguments]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True)
        except FileNotFoundError as error:
            raise SpecError("git is not installed: leave ref out to pack the files") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or [f"git ended with {error.returncode}"]
            reason = said[-1].removeprefix("fatal: ")
            raise SpecError(f'ref "{ref}" of {directory} can\'t be packed: {reason}') from error
        with tarfile.open(file.name) as archive:
            _extract(archive, tree)


def _read(archive: Path, tree: Path) -> Bundle:
    try:
        with tarfile.open(archive, "r:gz") as entries:
            bundle = _extract(entries, tree)
    except _DAMAGES as error:
        raise SpecError(f"{archive}: is damaged ({error}): fetch it again") from error
    return bundle


def _extract(archive: tarfile.TarFile, tree: Path) -> Bundle:
    """Write the files of `archive` below the empty `tree`, links last so that none is followed."""
    content = _Content()
    links = []
    for entry in archive:
        if entry.isdir():
            continue
        path = tree / _safe_name(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        source = None if entry.issym() else archive.extractfile(entry)
        if source is None:
            content.add_link(entry.name, entry.linkname)
            links.append((path, entry.linkname))
            continue
        reader = _HashingReader(source)
        with path.open("xb") as target:
            shutil.copyfileobj(reader, target)
        path.chmod(_mode(entry))
        content.add_file(entry, reader)
    for path, target_name in links:
        path.symlink_to(target_name)
    for path, target_name in links:
        if leaves(path, tree):
            raise SpecError(f'the link "{path.name}" -> "{target_name}" leaves the bundle')
    return content.bundle()


def _safe_name(entry: tarfile.TarInfo) -> PurePosixPath:
    name = PurePosixPath(entry.name)
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise SpecError(f'the name "{entry.name}" leads out of the bundle')
    if not (entry.isreg() or entry.issym()):
        raise SpecError(f'"{entry.name}" is neither a file nor a link')
    return name


def _mode(entry: tarfile.TarInfo) -> int:
    return _EXECUTABLE_MODE if entry.mode & 0o100 else _FILE_MODE


class _HashingReader:
    """Hashes and counts what is read through it."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.digest = hashlib.sha256()
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes at most."""
        chunk = self._source.read(size)
        self.digest.update(chunk)
        self.bytes += len(chunk)
        return chunk


class _BoundedReader:
    """A stream of which no more than a limit is read, in small parts.

    A few bytes of an archive can announce a header of any size, which tarfile reads at once.
    """

    def __init__(self, source: gzip.GzipFile, maximum_bytes: int) -> None:
        self._source = source
        self._maximum_bytes = maximum_bytes

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes at most."""
        if not 0 <= size <= _LARGEST_READ_BYTES:
            raise SpecError("the bundle holds a header that no bundle has: pack it again")
        chunk = self._source.read(size)
        self._check(self._source.tell())
        return chunk

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position of the stream."""
        self._check(offset)
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in the stream."""
        return self._source.tell()

    def _check(self, position: int) -> None:
        if position > self._maximum_bytes:
            raise SpecError(
                f"the bundle holds more than {_readable(self._maximum_bytes)} unpacked: leave "
                f"files out with {CASTOR_IGNORE}"
            )


class _Content:
    """Adds up what a bundle holds, file by file, in the order of the archive."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._files = 0

    def add_file(self, entry: tarfile.TarInfo, reader: _HashingReader) -> None:
        """Count a file that was read to its end."""
        self._add(f"{_mode(entry):o}", entry.name, reader.digest.hexdigest())
        self._bytes += reader.bytes

    def add_link(self, name: str, target: str) -> None:
        """Count a symbolic link."""
        self._add("link", name, target)

    def bundle(self) -> Bundle:
        """All that was counted."""
        return Bundle(self._digest.hexdigest(), self._bytes, self._files)

    def _add(self, kind: str, name: str, content: str) -> None:
        self._digest.update(os.fsencode(f"{kind}\0{name}\0{content}\0"))
        self._files += 1
