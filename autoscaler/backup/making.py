"""Backup of a controller's state while it runs."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from autoscaler.backup.archive import write_archive
from autoscaler.backup.manifest import FORMAT, STORE, Manifest
from autoscaler.domain.errors import StoreError
from autoscaler.state_directory import CLIENT_FILE, served_url, store_url_of
from autoscaler.store.sql.copying import copy_store
from autoscaler.store.sql.sqlite_copy import copy_sqlite

_DATABASES: Final = "*.db"
_BUNDLES: Final = "bundles"
# Folders that are copied whole: files of trials on their way, pools read from a cloud, and the
# certificate that running instances trust.
_FOLDERS: Final = ("files", "pools", "tls")
# Folders that stay on their disk, because they may be large.
_LEFT_OUT: Final = ("jobs", "logs")
# Beginnings of the names of files that belong to processes, or that a process is writing.
_OF_PROCESSES: Final = (".", "lock", "keeper.lock", "controller.log", STORE)


@dataclass(frozen=True, slots=True)
class MadeBackup:
    """A backup that was written, and the folders that it does not hold, with their bytes."""

    manifest: Manifest
    bytes: int
    left_out: dict[str, int]


def make_backup(
    file: Path, state: Path, store_url: str | None, now_seconds: float, with_logs: bool = False
) -> MadeBackup:
    """Write a backup of the state directory and of its store; the controller may run meanwhile.

    Args:
        file: archive to write, which must not exist.
        state: state directory of the controller.
        store_url: URL of the store; None for the SQLite file in `state`.
        now_seconds: present time.
        with_logs: whether the logs of jobs are copied, too.

    Raises:
        StoreError: the state or its store can't be read, or the archive can't be written.
    """
    if not (state / CLIENT_FILE).exists():
        raise StoreError(f"{state} is no state directory of a controller: name it with --state")
    if file.resolve().is_relative_to(state.resolve()):
        raise StoreError(f"{file} is in the state directory: name a file outside, on another disk")
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".castor-backup-", dir=file.absolute().parent))
    except OSError as error:
        raise StoreError(f"{file} can't be written: {error.strerror}") from error
    try:
        store = scratch / STORE
        tables_version = copy_store(store_url_of(state, store_url), store)
        contents = {STORE: store, **_other_databases(state, scratch)}
        contents |= dict(_files(state, store, with_logs))
        identity = _controller_in(store)
        manifest = write_archive(
            file,
            contents,
            lambda members: Manifest(
                FORMAT,
                version("castor-autoscaler"),
                tables_version,
                now_seconds,
                identity,
                served_url(state),
                members,
            ),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    folders = [name for name in _LEFT_OUT if not (with_logs and name == "logs")]
    left_out = {name: _size_bytes(state / name) for name in folders}
    return MadeBackup(manifest, file.stat().st_size, {k: v for k, v in left_out.items() if v})


def _other_databases(state: Path, scratch: Path) -> dict[str, Path]:
    """Return copies of the databases of providers in the state directory."""
    copies = {}
    for path in sorted(state.glob(_DATABASES)):
        if path.name != STORE:
            copies[path.name] = scratch / path.name
            copy_sqlite(path, copies[path.name])
    return copies


def _files(state: Path, store: Path, with_logs: bool) -> Iterator[tuple[str, Path]]:
    """Yield name and path of all files to copy but the databases."""
    for path in sorted(state.iterdir()):
        is_database = ".db" in path.name
        if path.is_file() and not is_database and not path.name.startswith(_OF_PROCESSES):
            yield path.name, path
    for sha256 in _bundles_in(store):
        path = state / _BUNDLES / f"{sha256}.tar.gz"
        if path.exists():
            yield f"{_BUNDLES}/{path.name}", path
    for folder in (*_FOLDERS, *(("logs",) if with_logs else ())):
        for path in sorted((state / folder).rglob("*")):
            if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                yield str(path.relative_to(state)), path


def _bundles_in(store: Path) -> list[str]:
    """Return the SHA-256 of all bundles that jobs in a copied store refer to."""
    with closing(sqlite3.connect(store)) as connection:
        specs = connection.execute("SELECT spec FROM jobs")
        bundles = {json.loads(text).get("bundle") for (text,) in specs}
    return sorted(bundle for bundle in bundles if bundle)


def _controller_in(store: Path) -> str:
    with closing(sqlite3.connect(store)) as connection:
        row = connection.execute(
            "SELECT value FROM settings WHERE key = 'controller_id'"
        ).fetchone()
    if row is None:
        raise StoreError("the store has no controller's id: run castor serve on it once")
    return str(row[0])


def _size_bytes(directory: Path) -> int:
    paths = directory.rglob("*")
    return sum(path.lstat().st_size for path in paths if path.is_file() and not path.is_symlink())
