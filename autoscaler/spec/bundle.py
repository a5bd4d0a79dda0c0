"""Bundles: reproducible archives of a working directory.

An archive is a gzipped tar of regular files and relative links, sorted by name, without owners
or times. Its hash covers names, modes and contents, so it does not depend on compression.
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
from autoscaler.spec.working_directory import (
    CASTOR_IGNORE,
    GIT_IGNORE,
    TreeFile,
    leaves,
    list_tree,
)

DEFAULT_MAXIMUM_BYTES: Final = 100_000_000
_FILE_MODE: Final = 0o644
_EXECUTABLE_MODE: Final = 0o755
_CHUNK_BYTES: Final = 1 << 16
_LARGEST_READ_BYTES: Final = 1 << 20
_DAMAGE_ERRORS: Final = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    FileExistsError,
    NotADirectoryError,
)


@dataclass(frozen=True, slots=True)
class Bundle:
    """Summary of an archive.

    Attributes:
        sha256: hash of names, modes and contents, hexadecimal.
        bytes: size of all files, unpacked.
        files: number of files and links.
    """

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
        directory: the working directory. Files that its ignore files match are left out. A link
            inside the directory stays a link.
        destination: the archive to write; outside `directory`, or ignored there.
        ref: commit, branch or tag whose version of the directory is packed, without submodules;
            None: the files as they are.
        maximum_bytes: limit on the size of all files, before compression.

    Raises:
        SpecError: the files are too large, a link leaves the directory, a file can't be packed,
            or `ref` does not exist.
    """
    if ref is None:
        return _pack_files(list_tree(directory), destination, maximum_bytes)
    with tempfile.TemporaryDirectory() as checkout:
        _write_commit(directory, ref, Path(checkout))
        files = list_tree(Path(checkout), ignore_file=CASTOR_IGNORE)
        return _pack_files(files, destination, maximum_bytes)


def unpack(archive: Path, directory: Path, sha256: str) -> Bundle:
    """Unpack `archive` to the new `directory`, atomically.

    Raises:
        SpecError: the archive is damaged, has another hash, or has an entry that bundles must not
            have: an absolute path, ``..``, a link that leaves, or a device.
        Conflict: `directory` exists.
        OSError: the archive can't be opened or the tree can't be written.
    """
    if directory.exists():
        raise Conflict(f"{directory} exists: remove it, or unpack to another directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".unpack-") as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        bundle = _extract_archive(archive, tree)
        if bundle.sha256 != sha256:
            raise SpecError(
                f"{archive}: has the hash {bundle.sha256:.12}, not {sha256:.12}: "
                "it was changed or damaged; fetch it again"
            )
        tree.rename(directory)
    return bundle


def inspect(archive: Path, maximum_bytes: int) -> Bundle:
    """Return the summary of an archive from an untrusted source, without writing files.

    Neither the bytes unpacked nor the memory used can exceed `maximum_bytes`.

    Raises:
        SpecError: the archive is damaged, too large, or has an entry that bundles must not have.
        OSError: the archive can't be opened.
    """
    content = _Content()
    try:
        with gzip.open(archive) as unzipped:
            bounded = _BoundedReader(unzipped, maximum_bytes)
            with tarfile.open(fileobj=bounded, mode="r:") as entries:  # type: ignore[call-overload]
                for entry in entries:
                    _add_entry(entries, entry, content)
    except _DAMAGE_ERRORS as error:
        raise SpecError(f"the bundle is damaged ({error}): pack it again") from error
    return content.bundle()


def require_files(bundle: Bundle, directory: Path) -> None:
    """Check that an ignore file does not exclude all files of a directory from its bundle.

    Raises:
        SpecError: the directory has files, and the bundle has none.
    """
    if bundle.files == 0 and any(directory.iterdir()):
        ignore_file = CASTOR_IGNORE if (directory / CASTOR_IGNORE).exists() else GIT_IGNORE
        raise SpecError(
            f"no file of {directory} would be packed: {ignore_file} ignores all of them. List in "
            f"{CASTOR_IGNORE} only files that the job does not need",
            "working_directory",
        )


def require_script(command: Sequence[str], directory: Path) -> None:
    """Check that an ignore file does not exclude the script of a command from its bundle.

    Raises:
        SpecError: the script is in the directory, and is ignored.
    """
    script = next((word for word in command if word.endswith((".py", ".sh"))), None)
    if script is None or PurePosixPath(script).is_absolute() or not (directory / script).is_file():
        return
    name = os.path.normpath(script)
    if not name.startswith("..") and name not in {file.name for file in list_tree(directory)}:
        ignore_file = CASTOR_IGNORE if (directory / CASTOR_IGNORE).exists() else GIT_IGNORE
        raise SpecError(
            f"{script} would not be packed: a pattern of {ignore_file} excludes it. Remove the "
            f"pattern, or write a {CASTOR_IGNORE}, which is then used alone",
            "command",
        )


def _add_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, content: _Content) -> None:
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


def _require_size(files: Sequence[TreeFile], maximum_bytes: int) -> None:
    total_bytes = sum(file.bytes for file in files)
    if total_bytes <= maximum_bytes:
        return
    sizes: Counter[str] = Counter()
    for file in files:
        folder, slash, _ = file.name.partition("/")
        sizes[folder + slash] += file.bytes
    largest = ", ".join(f"{name} ({_readable(size)})" for name, size in sizes.most_common(3))
    raise SpecError(
        f"the working directory has {_readable(total_bytes)}, over the limit of "
        f"{_readable(maximum_bytes)}; largest are {largest}. List in {CASTOR_IGNORE} "
        "files that the job does not need, or raise bundle_limit"
    )


def _readable(size_bytes: int) -> str:
    return ByteSize(size_bytes).human_readable(decimal=True)


def _pack_files(files: Sequence[TreeFile], destination: Path, maximum_bytes: int) -> Bundle:
    _require_size(files, maximum_bytes)
    partial = destination.with_name(f"{destination.name}.part")
    content = _Content()
    try:
        with (
            partial.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for file in files:
                _pack_file(archive, file, content)
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
    return content.bundle()


def _pack_file(archive: tarfile.TarFile, file: TreeFile, content: _Content) -> None:
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
            f"{file.path}: can't be read ({error.strerror}): list it in {CASTOR_IGNORE}"
        ) from error
    content.add_file(entry, reader)


def _write_commit(directory: Path, ref: str, tree: Path) -> None:
    """Write the files of `directory` at the commit `ref` to the directory `tree`."""
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        arguments = ["--format=tar", f"--output={file.name}", "--end-of-options", ref]
        command = ["git", "-C", str(directory), "archive", *arguments]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True)
        except FileNotFoundError as error:
            raise SpecError("git is not installed: leave ref out to pack the files") from error
        except subprocess.CalledProcessError as error:
            lines = error.stderr.strip().splitlines() or [f"git exited with {error.returncode}"]
            reason = lines[-1].removeprefix("fatal: ")
            raise SpecError(f'ref "{ref}" of {directory} can\'t be packed: {reason}') from error
        with tarfile.open(file.name) as archive:
            _extract(archive, tree)


def _extract_archive(archive: Path, tree: Path) -> Bundle:
    try:
        with tarfile.open(archive, "r:gz") as entries:
            bundle = _extract(entries, tree)
    except _DAMAGE_ERRORS as error:
        raise SpecError(f"{archive}: is damaged ({error}): fetch it again") from error
    return bundle


def _extract(archive: tarfile.TarFile, tree: Path) -> Bundle:
    """Write the files of `archive` to the empty `tree`, links last so that no link is followed."""
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
        raise SpecError(f'the name "{entry.name}" leaves the bundle')
    if not (entry.isreg() or entry.issym()):
        raise SpecError(f'"{entry.name}" is neither a file nor a link')
    return name


def _mode(entry: tarfile.TarInfo) -> int:
    return _EXECUTABLE_MODE if entry.mode & 0o100 else _FILE_MODE


class _HashingReader:
    """Reader that hashes and counts all bytes read."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.digest = hashlib.sha256()
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes, or all if `size` is -1."""
        chunk = self._source.read(size)
        self.digest.update(chunk)
        self.bytes += len(chunk)
        return chunk


class _BoundedReader:
    """Stream that allows only small reads, up to a total limit.

    A few bytes of an archive can announce a header of any size, which tarfile reads in one call.
    """

    def __init__(self, source: gzip.GzipFile, maximum_bytes: int) -> None:
        self._source = source
        self._maximum_bytes = maximum_bytes

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes.

        Raises:
            SpecError: `size` is above 1 MiB, or the limit is exceeded.
        """
        if not 0 <= size <= _LARGEST_READ_BYTES:
            raise SpecError("the bundle has an oversized header: pack it again")
        chunk = self._source.read(size)
        self._require_within(self._source.tell())
        return chunk

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position of the stream.

        Raises:
            SpecError: the limit is exceeded.
        """
        self._require_within(offset)
        return self._source.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in the stream."""
        return self._source.tell()

    def _require_within(self, position: int) -> None:
        if position > self._maximum_bytes:
            raise SpecError(
                f"the bundle has more than {_readable(self._maximum_bytes)} unpacked: exclude "
                f"files with {CASTOR_IGNORE}"
            )


class _Content:
    """Accumulator of a bundle's hash, size and number of files, in the order of the archive."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._files = 0

    def add_file(self, entry: tarfile.TarInfo, reader: _HashingReader) -> None:
        """Add a file that `reader` has read to its end."""
        self._add(f"{_mode(entry):o}", entry.name, reader.digest.hexdigest())
        self._bytes += reader.bytes

    def add_link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._add("link", name, target)

    def bundle(self) -> Bundle:
        """Return the summary of all files and links added."""
        return Bundle(self._digest.hexdigest(), self._bytes, self._files)

    def _add(self, kind: str, name: str, content: str) -> None:
        self._digest.update(os.fsencode(f"{kind}\0{name}\0{content}\0"))
        self._files += 1
