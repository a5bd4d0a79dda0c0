"""One controller at a time has a store, on both databases."""

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
from autoscaler.store.sql.claim import claim_store
from tests.conformance.store_examples import execute
from tests.store.conftest import Create

_HOLD = """
import sys, time
from pathlib import Path
from autoscaler.store.sql.claim import claim_store
with claim_store(sys.argv[1], Path("/states/first")):
    print("held", flush=True)
    time.sleep(600)
"""


def hold_elsewhere(url: str) -> subprocess.Popen[str]:
    """Return a process that has claimed the store."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, url], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


class Claims:
    """Tests for both databases; `url` is that of an empty one."""

    def test_a_second_controller_is_refused_and_hears_who_has_the_store(self, url: str) -> None:
        with (
            claim_store(url, Path("/states/first")),
            pytest.raises(Conflict, match=f"pid {os.getpid()}.*stop that controller"),
            claim_store(url, Path("/states/second")),
        ):
            raise AssertionError("two have it")

    def test_a_released_store_can_be_claimed(self, url: str) -> None:
        for _ in range(2):
            with claim_store(url, Path("/states/first")) as claim:
                claim.check()

    def test_the_successor_of_a_killed_controller_starts_at_once(self, url: str) -> None:
        process = hold_elsewhere(url)
        with pytest.raises(Conflict, match=f"pid {process.pid}"), claim_store(url, Path("/two")):
            pass
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with claim_store(url, Path("/two")) as claim:
            claim.check()

    def test_a_claimed_store_can_be_read_by_others(self, url: str) -> None:
        with claim_store(url, Path("/one")), closing(open_store(url)) as store:
            assert store.jobs.all() == ()


class TestSQLiteClaims(Claims):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'castor.db'}"

    def test_another_path_to_the_same_file_is_the_same_store(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path)
        with (
            claim_store(f"sqlite:///{tmp_path}/castor.db", Path("/states/first")),
            pytest.raises(Conflict, match="state /states/first"),
            claim_store(f"sqlite:///{tmp_path}/link/castor.db", Path("/states/second")),
        ):
            raise AssertionError("two have it")

    def test_a_database_with_a_second_hard_link_is_refused(self, tmp_path: Path) -> None:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
        first, second = (tmp_path / name / "castor.db" for name in ("first", "second"))
        with claim_store(f"sqlite:///{first}", tmp_path):
            open_store(f"sqlite:///{first}").close()
            second.hardlink_to(first)
            with (
                pytest.raises(StoreError, match=r"2 hard links.*remove the others"),
                claim_store(f"sqlite:///{second}", tmp_path),
            ):
                raise AssertionError("two have it")
        with pytest.raises(StoreError), claim_store(f"sqlite:///{first}", tmp_path):
            pass
        second.unlink()
        with claim_store(f"sqlite:///{first}", tmp_path) as claim:
            claim.check()

    def test_a_directory_that_is_missing_is_named(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/missing/castor.db"
        with pytest.raises(StoreError, match="its directory must exist"), claim_store(url, Path()):
            pass


class TestPostgreSQLClaims(Claims):
    @pytest.fixture
    def url(self, postgresql: Create) -> str:
        return postgresql()

    def test_a_claim_whose_session_was_ended_is_taken_again(self, url: str) -> None:
        with claim_store(url, Path("/one")) as claim:
            end_sessions(url)
            claim.check()
            with pytest.raises(Conflict), claim_store(url, Path("/two")):
                pass

    def test_a_claim_that_another_has_taken_meanwhile_is_lost(self, url: str) -> None:
        with claim_store(url, Path("/one")) as claim:
            end_sessions(url)
            with claim_store(url, Path("/two")), pytest.raises(Conflict, match="another"):
                claim.check()


def end_sessions(url: str) -> None:
    """Have the server end every session of a controller that has claimed the store."""
    execute(
        url,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name LIKE 'castor %' AND datname = current_database()",
    )
