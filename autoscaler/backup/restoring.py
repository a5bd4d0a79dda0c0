"""Restoration of a backup into an empty place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from autoscaler.backup.archive import read_archive
from autoscaler.backup.manifest import STORE, Manifest
from autoscaler.domain.errors import StoreError
from autoscaler.state_directory import store_url_of
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.events import Event
from autoscaler.store.repositories.settings import Restoration
from autoscaler.store.sql.copying import import_store
from autoscaler.store.sql.database import is_sqlite, parse_url
from autoscaler.store.sql.migration import newest_version

RESTORED_EVENT = "restored"


def verified(file: Path) -> Manifest:
    """Return the manifest of a backup that this Castor can restore.

    Raises:
        StoreError: the file is no backup, is damaged, or is of a newer Castor.
    """
    manifest = read_archive(file)
    if manifest.version > newest_version():
        raise StoreError(
            f"{file} holds tables of version {manifest.version}, and this Castor supports "
            f"versions up to {newest_version()}: install Castor {manifest.castor} or newer"
        )
    return manifest


def restore_backup(
    file: Path,
    state: Path,
    store_url: str | None,
    now_seconds: float,
    check: Callable[[Path], None] = lambda directory: None,
) -> Manifest:
    """Restore a backup to an empty state directory and an empty store; return its manifest.

    The state directory appears whole or not at all. The store is migrated to this code's version,
    and gets an event with the time that is missing from it. `check` may refuse the restored
    directory before it gets its name.

    Raises:
        StoreError: the backup can't be used (`verified`), or the place is not empty or not
            writable.
    """
    _require_empty(state, store_url)
    manifest = verified(file)
    state.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{state.name}-", dir=state.parent))
    try:
        read_archive(file, scratch)
        check(scratch)
        _note_gap(f"sqlite:///{scratch / STORE}", manifest, now_seconds)
        if store_url is not None:
            _move_store(scratch / STORE, store_url)
        scratch.rename(state)
    except OSError as error:
        raise StoreError(f"{state} can't be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return manifest


def gap_text(manifest: Manifest, now_seconds: float) -> str:
    """Return what a restored controller does not know."""
    made = datetime.fromtimestamp(manifest.made_seconds, UTC)
    minutes = max(now_seconds - manifest.made_seconds, 0.0) / 60
    return (
        f"restored from a backup of {made:%Y-%m-%d %H:%M:%S} UTC: jobs, instances and costs of "
        f"the {minutes:,.0f} min since then are not in this store. Instances that clouds list and "
        "no job ordered are ended. castor reconcile compares the ledger with the bill"
    )


def _require_empty(state: Path, store_url: str | None) -> None:
    if state.exists() and (not state.is_dir() or any(state.iterdir())):
        raise StoreError(f"{state} is not empty: a backup is restored into a new directory only")
    parsed = parse_url(store_url_of(state, store_url))
    if is_sqlite(parsed) and Path(parsed.database or "").exists():
        raise StoreError(f"{parsed.database} exists: a backup is restored into a new store only")


def _note_gap(url: str, manifest: Manifest, now_seconds: float) -> None:
    store = open_store(url)
    try:
        store.settings.note_restoration(Restoration(manifest.made_seconds, now_seconds))
        store.events.add(Event(now_seconds, RESTORED_EVENT, gap_text(manifest, now_seconds)))
    finally:
        store.close()


def _move_store(copy: Path, url: str) -> None:
    """Move a restored store to where `url` says."""
    parsed = parse_url(url)
    if is_sqlite(parsed):
        shutil.move(copy, Path(parsed.database or ""))
        return
    import_store(copy, url)
    copy.unlink()
