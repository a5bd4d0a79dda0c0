from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.spec.bundle import unpack
from hpo.objective.packaging import OBJECTIVE_FILE, import_root, pack_objective
from hpo.storage.studies import sqlite_file
from tests.hpo.objectives import curve


def test_a_closure_travels_with_what_it_refers_to(tmp_path: Path) -> None:
    factor = 3

    def objective(trial: int) -> int:
        return factor * trial

    archive = tmp_path / "bundle.tar.gz"
    files = tmp_path / "files"
    files.mkdir()
    (files / "data.txt").write_text("data")
    bundle = pack_objective(objective, files, archive)
    unpack(archive, tmp_path / "there", bundle.sha256)
    assert (tmp_path / "there" / "data.txt").read_text() == "data"
    loaded = pickle.loads((tmp_path / "there" / OBJECTIVE_FILE).read_bytes())
    assert loaded(4) == 12


def test_the_studys_own_file_stays_here(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    study = optuna.create_study(storage=f"sqlite:///{files / 'study.db'}")
    (files / "data.db").write_text("data")
    bundle = pack_objective(curve, files, tmp_path / "bundle.tar.gz", sqlite_file(study))
    unpack(tmp_path / "bundle.tar.gz", tmp_path / "there", bundle.sha256)
    names = {path.name for path in (tmp_path / "there").iterdir()}
    assert names == {OBJECTIVE_FILE, "data.db"}
    assert sqlite_file(optuna.create_study()) is None


def test_a_database_in_use_stays_here_and_is_not_touched(tmp_path: Path) -> None:
    """Or a process that ends elsewhere would throw away what this one has written."""
    files = tmp_path / "files"
    files.mkdir()
    with closing(sqlite3.connect(files / "study.db")) as ours:
        ours.execute("PRAGMA journal_mode = WAL")
        ours.execute("CREATE TABLE trials (number)")
        ours.execute("SELECT * FROM trials").fetchall()
        bundle = pack_objective(curve, files, tmp_path / "bundle.tar.gz")
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import sqlite3; sqlite3.connect('study.db').execute('SELECT * FROM trials')",
            ],
            cwd=files,
            check=True,
        )
        ours.execute("INSERT INTO trials VALUES (1)")
        ours.commit()
    with closing(sqlite3.connect(files / "study.db")) as later:
        assert later.execute("SELECT * FROM trials").fetchall() == [(1,)]
    unpack(tmp_path / "bundle.tar.gz", tmp_path / "there", bundle.sha256)
    assert [path.name for path in (tmp_path / "there").iterdir()] == [OBJECTIVE_FILE]


def test_what_can_not_travel_is_named(tmp_path: Path) -> None:
    lock = threading.Lock()

    def objective(trial: int) -> bool:
        return lock.locked()

    with pytest.raises(SpecError, match=r"objective: something .* can't travel .*lock"):
        pack_objective(objective, tmp_path, tmp_path / "bundle.tar.gz")


def test_the_modules_beside_an_objective_go_with_it() -> None:
    assert import_root(curve) == Path(__file__).parents[3]
    assert import_root(len) is None
    assert import_root(subprocess.run) is None


def test_a_script_takes_its_own_directory_along(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            """
            from pathlib import Path
            import beside
            from hpo.objective.packaging import import_root, pack_objective

            def objective(trial):
                return beside.VALUE * trial

            root = import_root(objective)
            print(pack_objective(objective, root, Path("../bundle.tar.gz")).sha256)
            """
        )
    )
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")], cwd=work, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    unpack(tmp_path / "bundle.tar.gz", tmp_path / "there", done.stdout.strip())
    assert (tmp_path / "there" / "beside.py").exists()
    code = f"import pickle; print(pickle.load(open({OBJECTIVE_FILE!r}, 'rb'))(6))"
    there = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "there", capture_output=True, text=True
    )
    assert there.stdout.strip() == "42", there.stderr
