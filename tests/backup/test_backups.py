"""Backups of a state directory, and their restoration."""

from __future__ import annotations

import json
import stat
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from autoscaler.backup import making
from autoscaler.backup.making import make_backup
from autoscaler.backup.manifest import MANIFEST, Manifest
from autoscaler.backup.restoring import restore_backup
from autoscaler.domain.errors import StoreError
from autoscaler.service.access.authentication import load_key
from autoscaler.state_directory import let_owner_in, port_before
from autoscaler.store.opening import open_store
from autoscaler.store.repositories.settings import Restoration
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, full_spec, spec
from tests.store.conftest import Create, postgresql  # noqa: F401  # a fixture
from tests.store.frozen_stores import CONTROLLER, fill

URL = "http://10.0.0.7:8470"
BUNDLE = full_spec().bundle


def write_state(state: Path, store_url: str | None = None) -> Store:
    """Write the files of a controller that has served; return its open store."""
    state.mkdir(mode=0o700)
    store = open_store(store_url or f"sqlite:///{state / 'castor.db'}")
    fill(store)
    load_key(state / "secret.key")
    let_owner_in(state, URL)
    bundles = f"bundles/{BUNDLE}.tar.gz", "bundles/unused.tar.gz"
    for name in (*bundles, "files/study/a", "tls/cert.pem", "lock"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(name)
    for name in ("logs/digits/a.log", "jobs/digits/checkpoint", "lighthouses/digits"):
        (state / name).parent.mkdir(parents=True)
        (state / name).write_text(name)
    return store


@pytest.fixture
def state(tmp_path: Path) -> Path:
    write_state(tmp_path / "state").close()
    return tmp_path / "state"


def names_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_restored_state_is_that_of_the_backup(state: Path, tmp_path: Path) -> None:
    file, restored = tmp_path / "a.backup", tmp_path / "restored"
    made = make_backup(file, state, None, NOW + 1000)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made.left_out == {"jobs": 22, "logs": 17}
    manifest = restore_backup(file, restored, None, NOW + 4600)
    assert manifest == made.manifest
    assert (manifest.controller, manifest.url) == (CONTROLLER, URL)
    assert names_in(restored) == {
        "castor.db",
        "client.json",
        "secret.key",
        f"bundles/{BUNDLE}.tar.gz",
        "files/study/a",
        "tls/cert.pem",
    }
    assert load_key(restored / "secret.key") == load_key(state / "secret.key")
    assert port_before(restored) == 8470
    assert stat.S_IMODE(restored.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in restored.iterdir()} == {0o600, 0o700}
    before, after = (open_store(f"sqlite:///{path}/castor.db") for path in (state, restored))
    assert after.jobs.all() == before.jobs.all()
    assert after.ledger.entries() == before.ledger.entries()
    assert after.settings.controller_id() == CONTROLLER
    assert after.settings.restoration() == Restoration(NOW + 1000, NOW + 4600)
    assert before.settings.restoration() is None
    (event,) = after.events.latest(limit=1)
    assert event.kind == "restored"
    assert "costs of the 60 min since then are not in this store" in event.text
    before.close()
    after.close()


def test_logs_are_copied_on_request(state: Path, tmp_path: Path) -> None:
    made = make_backup(tmp_path / "a.backup", state, None, NOW, with_logs=True)
    assert "logs/digits/a.log" in made.manifest.members
    assert set(made.left_out) == {"jobs"}


def test_a_file_that_is_deleted_meanwhile_is_left_out(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = making.write_archive

    def delete_and_write(file: Path, *contents: Any) -> Manifest:
        (state / "files/study/a").unlink()
        return written(file, *contents)

    monkeypatch.setattr(making, "write_archive", delete_and_write)
    file = tmp_path / "a.backup"
    made = make_backup(file, state, None, NOW)
    assert "files/study/a" not in made.manifest.members
    assert made.manifest == restore_backup(file, tmp_path / "restored", None, NOW)
    assert not (tmp_path / "restored" / "files").exists()


def test_a_backup_under_writes_has_a_prefix_of_them(state: Path, tmp_path: Path) -> None:
    """Each job is added with its predecessor there: a copy with a hole would show."""
    store = open_store(f"sqlite:///{state / 'castor.db'}")
    is_over = threading.Event()
    written: list[str] = []

    def write() -> None:
        while not is_over.is_set():
            written.append(store.jobs.add(spec(f"job-{len(written)}"), NOW).id)

    writer = threading.Thread(target=write)
    writer.start()
    while len(written) < 5:
        pass
    began = len(written)
    make_backup(tmp_path / "a.backup", state, None, NOW)
    ended = len(written) + 1
    is_over.set()
    writer.join()
    store.close()
    restore_backup(tmp_path / "a.backup", tmp_path / "restored", None, NOW)
    restored = open_store(f"sqlite:///{tmp_path / 'restored' / 'castor.db'}")
    copied = [job.id for job in restored.jobs.all() if job.id.startswith("job-")]
    restored.close()
    assert began <= len(copied) <= ended
    assert copied == written[: len(copied)]


def test_a_backup_replaces_no_file(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    file.write_text("mine")
    with pytest.raises(StoreError, match="exists: name another file"):
        make_backup(file, state, None, NOW)
    assert file.read_text() == "mine"
    with pytest.raises(StoreError, match="is in the state directory"):
        make_backup(state / "a.backup", state, None, NOW)
    with pytest.raises(StoreError, match="no state directory of a controller"):
        make_backup(tmp_path / "b.backup", tmp_path, None, NOW)
    with pytest.raises(StoreError, match="can't be written"):
        make_backup(tmp_path / "none" / "b.backup", state, None, NOW)
    assert {path.name for path in tmp_path.iterdir()} == {"a.backup", "state"}


@pytest.mark.parametrize("part", [0.02, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_a_damaged_backup_is_refused_and_restores_nothing(
    state: Path, tmp_path: Path, part: float, damage: str
) -> None:
    file = tmp_path / "a.backup"
    make_backup(file, state, None, NOW)
    content = bytearray(file.read_bytes())
    place = int(len(content) * part)
    if damage == "flip":
        content[place] ^= 0xFF
    else:
        del content[place:]
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"a\.backup is (damaged|no backup)"):
        restore_backup(file, tmp_path / "restored", None, NOW)
    assert {path.name for path in tmp_path.iterdir()} == {"a.backup", "state"}


def test_the_message_names_the_damaged_file(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    make_backup(file, state, None, NOW)
    content = file.read_bytes()
    name = f"bundles/{BUNDLE}.tar.gz".encode()
    place = content.index(name, content.index(name) + 1)  # the first one is in the header
    file.write_bytes(content[:place] + b"B" + content[place + 1 :])
    with pytest.raises(StoreError, match=rf'damaged: "bundles/{BUNDLE}.tar.gz" is not what'):
        restore_backup(file, tmp_path / "restored", None, NOW)


def rewritten(file: Path, change: object, extra: str | None = None) -> None:
    """Change the manifest of a backup, and add an empty member before it."""
    with tarfile.open(file) as archive:
        entries = [(entry, archive.extractfile(entry)) for entry in archive]
        with tarfile.open(file.with_suffix(".new"), "w") as written:
            for entry, content in entries:
                assert content is not None
                if entry.name == MANIFEST:
                    if extra is not None:
                        written.addfile(tarfile.TarInfo(extra))
                    manifest = {**json.loads(content.read()), **change}  # type: ignore[dict-item]
                    path = file.with_suffix(".json")
                    path.write_text(json.dumps(manifest))
                    written.add(path, MANIFEST)
                    path.unlink()
                else:
                    written.addfile(entry, content)
    file.with_suffix(".new").rename(file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "0999"}, r"tables of version 0999.*install Castor 9\.9 or newer"),
        ({"format": 99}, r"has format 99.*install Castor 9\.9"),
    ],
)
def test_a_backup_of_a_newer_castor_is_refused(
    state: Path, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    file = tmp_path / "a.backup"
    make_backup(file, state, None, NOW)
    rewritten(file, {**change, "castor": "9.9"})
    with pytest.raises(StoreError, match=words):
        restore_backup(file, tmp_path / "restored", None, NOW)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"made_seconds": "NaN"}, 'made_seconds: "nan" is no time'),
        ({"made_seconds": 1e300}, r'made_seconds: "1e\+300" is no time'),
        ({"castor": "\x1b[2J"}, r'castor: "\\x1b\[2J" is no text of one line'),
        ({"url": "x" * 5_000}, "url: .* is no text of one line"),
        ({"members": {}}, r"members: castor\.db is missing"),
    ],
)
def test_a_manifest_with_impossible_values_restores_nothing(
    state: Path, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    file = tmp_path / "a.backup"
    make_backup(file, state, None, NOW)
    rewritten(file, change)
    with pytest.raises(StoreError, match=rf"damaged: its manifest can't be read \({words}"):
        restore_backup(file, tmp_path / "restored", None, NOW)
    assert {path.name for path in tmp_path.iterdir()} == {"a.backup", "state"}


@pytest.mark.parametrize(
    "headers",
    [
        {"size": "-5"},
        {"size": "9" * 30},
        {"GNU.sparse.map": "1,x", "GNU.sparse.size": "1"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "x"},
        {"path": "a\0b"},
        {"path": "a/" * 2_000 + "b"},
    ],
    ids=lambda headers: next(iter(headers)),
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_header_that_lies_restores_nothing(
    tmp_path: Path, headers: dict[str, str], is_first: bool
) -> None:
    file = tmp_path / "a.backup"
    with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
        if not is_first:
            archive.addfile(tarfile.TarInfo("secret.key"))
        entry = tarfile.TarInfo("castor.db")
        entry.pax_headers = headers
        archive.addfile(entry)
    with pytest.raises(StoreError, match=r"a\.backup is (no backup .*or is )?damaged"):
        restore_backup(file, tmp_path / "restored", None, NOW)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "a/../../escaped"])
def test_no_member_leaves_the_directory(state: Path, tmp_path: Path, name: str) -> None:
    file = tmp_path / "a.backup"
    make_backup(file, state, None, NOW)
    rewritten(file, {}, name)
    with pytest.raises(StoreError, match="damaged: member"):
        restore_backup(file, tmp_path / "restored", None, NOW)
    assert {path.name for path in tmp_path.iterdir()} == {"a.backup", "state"}


def test_an_existing_state_stays_as_it_is(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    make_backup(file, state, None, NOW)
    before = names_in(state)
    with pytest.raises(StoreError, match="is not empty"):
        restore_backup(file, state, None, NOW)
    assert names_in(state) == before
    with pytest.raises(StoreError, match=r"castor\.db exists"):
        restore_backup(file, tmp_path / "new", f"sqlite:///{state / 'castor.db'}", NOW)
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()
    restore_backup(file, tmp_path / "new", f"sqlite:///{tmp_path / 'elsewhere.db'}", NOW)
    assert not (tmp_path / "new" / "castor.db").exists()
    store = open_store(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    assert store.settings.controller_id() == CONTROLLER
    store.close()


def test_a_store_moves_between_sqlite_and_postgresql(
    tmp_path: Path,
    postgresql: Create,  # noqa: F811
) -> None:
    first, second = postgresql(), postgresql()
    original = write_state(tmp_path / "state", first)
    jobs, lines = original.jobs.all(), original.ledger.entries()
    make_backup(tmp_path / "a.backup", tmp_path / "state", first, NOW)
    restore_backup(tmp_path / "a.backup", tmp_path / "to-sqlite", None, NOW)
    restore_backup(tmp_path / "a.backup", tmp_path / "to-server", second, NOW)
    assert not (tmp_path / "to-server" / "castor.db").exists()
    for url in (f"sqlite:///{tmp_path / 'to-sqlite' / 'castor.db'}", second):
        store = open_store(url)
        assert store.jobs.all() == jobs
        assert store.ledger.entries() == lines
        (decision,) = store.journal.decisions()
        assert store.journal.inputs(decision) == original.journal.inputs(decision)
        assert store.jobs.add(spec("next"), NOW).id == "next"
        assert [job.id for job in store.jobs.all()][-1] == "next"
        store.close()
    with pytest.raises(StoreError, match=r"is not empty \(table "):
        restore_backup(tmp_path / "a.backup", tmp_path / "again", second, NOW)
    assert not (tmp_path / "again").exists()
    original.close()
