"""One controller at a time has an SQLite database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from autoscaler.domain.errors import Conflict, StoreError
from autoscaler.store.opening import open_store
from autoscaler.store.sql.file_lock import hold_database

_HOLD = """
import sys, time
from pathlib import Path
from autoscaler.store.sql.file_lock import hold_database
with hold_database(sys.argv[1], Path("/states/first")):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'castor.db'}"


def test_a_second_controller_is_refused_and_hears_who_has_the_store(url: str) -> None:
    with (
        hold_database(url, Path("/states/first")),
        pytest.raises(Conflict, match=f"pid {os.getpid()}.*stop that controller"),
        hold_database(url, Path("/states/second")),
    ):
        raise AssertionError("two have it")


def test_a_released_database_can_be_held(url: str) -> None:
    for _ in range(2):
        with hold_database(url, Path("/states/first")):
            pass


def test_the_successor_of_a_killed_controller_starts_at_once(url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, url], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(Conflict, match=f"pid {process.pid}"), hold_database(url, Path("/two")):
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with hold_database(url, Path("/two")):
        pass


def test_a_held_database_can_be_read_by_others(url: str) -> None:
    with hold_database(url, Path("/one")), closing(open_store(url)) as store:
        assert store.jobs.all() == ()


def test_another_path_to_the_same_file_is_the_same_database(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with (
        hold_database(f"sqlite:///{tmp_path}/castor.db", Path("/states/first")),
        pytest.raises(Conflict, match="state /states/first"),
        hold_database(f"sqlite:///{tmp_path}/link/castor.db", Path("/states/second")),
    ):
        raise AssertionError("two have it")


def test_a_database_with_a_second_hard_link_is_refused(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = (tmp_path / name / "castor.db" for name in ("first", "second"))
    with hold_database(f"sqlite:///{first}", tmp_path):
        open_store(f"sqlite:///{first}").close()
        second.hardlink_to(first)
        with (
            pytest.raises(StoreError, match=r"2 hard links.*remove the others"),
            hold_database(f"sqlite:///{second}", tmp_path),
        ):
            raise AssertionError("two have it")
    with pytest.raises(StoreError), hold_database(f"sqlite:///{first}", tmp_path):
        pass
    second.unlink()
    with hold_database(f"sqlite:///{first}", tmp_path):
        pass


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/missing/castor.db"
    with pytest.raises(StoreError, match="its directory must exist"), hold_database(url, Path()):
        pass
