"""Opening of databases that are new, old, foreign, damaged, full or missing."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import URL, Engine, Pool, create_engine, event, make_url
from sqlalchemy.exc import DBAPIError

from autoscaler.domain.access import OWNER
from autoscaler.domain.errors import NotLeading, StoreError
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import CheckpointSpec
from autoscaler.domain.report import ReportOrigin
from autoscaler.domain.transfer import Transfer, TransferCount
from autoscaler.store.opening import open_store, open_to_read
from autoscaler.store.repositories.jobs import JobFilter, JobOrder
from autoscaler.store.sql import database as database_module
from autoscaler.store.sql import migrations
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.migration import NEWEST_TABLES
from autoscaler.store.sql.schema import Table
from tests.conformance.store_examples import (
    NOW,
    add_job,
    execute,
    launch,
    observation,
    order,
    report,
    spec,
)
from tests.store.conftest import Create
from tests.store.newest_tables import migrated_tables, tables_of

# The newest version that this code can make.
LATEST = max(
    path.name[1:5] for path in Path(migrations.__file__).parent.glob("versions/v[0-9]*.py")
)

# The columns that each version added, so that a test can make a store of an older version.
ADDED_COLUMNS = {
    "0007": ("instances.transfer", "ledger.usd", "ledger.sent_bytes", "ledger.fetched_bytes"),
    "0008": ("intents.sent_seconds",),
    "0009": ("observations.era", "observations.settled_seconds", "observations.run"),
    "0011": ("jobs.observations_revision",),
    "0012": ("jobs.stop_reason",),
    "0015": ("jobs.person", "jobs.team", "jobs.study"),
    "0016": ("jobs.sampled_seconds", "jobs.sample_spacing_seconds", "jobs.sample_count"),
    "0021": ("jobs.checkpoint_directory",),
}


# Statements that undo other changes of a version.
UNDONE = {
    "0021": ("DROP INDEX ix_jobs_checkpoint_directory",),
    "0020": ("DROP TABLE budgets",),
    "0018": ("DROP TABLE time_uses", "DROP TABLE time_days", "DROP TABLE lost_work"),
    "0019": ("DROP TABLE kept_answers",),
    "0017": ("DROP TABLE deliveries", "DROP TABLE notices"),
    "0016": ("DROP TABLE samples",),
    "0015": tuple(f"DROP INDEX ix_jobs_{name}" for name in ("phase", "person", "team", "study")),
    "0014": ("DROP TABLE leadership",),
    "0013": (
        *("DROP TABLE access_tokens", "DROP TABLE owners", "DROP TABLE node_tokens"),
        *("DROP TABLE audit", "DROP TABLE people"),
        "CREATE TABLE people (name TEXT NOT NULL, token_hash TEXT NOT NULL)",
        "ALTER TABLE join_tokens DROP COLUMN key_hash",
    ),
}


def make_older(url: str, version: str) -> None:
    """Drop what later versions added to a closed store, which then has the older version."""
    for later, statements in UNDONE.items():
        for statement in statements if later > version else ():
            execute(url, statement)
    for later, columns in ADDED_COLUMNS.items():
        for table, name in (column.split(".") for column in columns if later > version):
            execute(url, f"ALTER TABLE {table} DROP COLUMN {name}")
    execute(url, f"UPDATE alembic_version SET version_num = '{version}'")


def test_a_new_file_has_the_tables_that_the_migrations_make(tmp_path: Path) -> None:
    assert NEWEST_TABLES.read_text() == migrated_tables(tmp_path), (
        "run: python -m tests.store.newest_tables"
    )
    open_store(f"sqlite:///{tmp_path / 'new.db'}").close()
    with sqlite3.connect(tmp_path / "new.db") as connection:
        assert tables_of(connection) == NEWEST_TABLES.read_text()


class Migrations:
    """Tests for both databases; `url` is that of an empty one."""

    def test_migrations_make_the_tables_of_the_schema(self, url: str) -> None:
        open_store(url).close()
        engine = create_engine(url)
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, Table.metadata) == []
        engine.dispose()

    def test_a_store_is_migrated_once_by_all_who_open_it(self, url: str) -> None:
        with ThreadPoolExecutor(4) as pool:
            stores = list(pool.map(lambda _: open_store(url), range(4)))
        assert {store.version for store in stores} == {LATEST}
        assert len({store.settings.controller_id() for store in stores}) == 1
        for store in stores:
            store.close()

    def test_a_store_of_a_newer_version_is_left_alone(self, url: str) -> None:
        open_store(url).close()
        execute(url, "UPDATE alembic_version SET version_num = '0999'")
        with pytest.raises(StoreError, match=rf"version 0999.* up to {LATEST}.*newer Castor"):
            open_store(url)
        assert execute(url, "SELECT version_num FROM alembic_version") == "0999"

    def test_instances_of_before_transfer_was_counted_owe_nothing(self, url: str) -> None:
        store = open_store(url)
        add_job(store)
        held, lines = launch(store), store.ledger.entries()
        store.close()
        make_older(url, "0006")
        store = open_store(url)
        assert store.instances.get(held.id) == held
        assert store.ledger.entries() == lines
        count = TransferCount(NOW, Transfer(10**12, 10**12))
        store.instances.record_node(held.id, InstancePhase.TRAINING, NOW + 9, transfer=count)
        assert store.ledger.entries() == lines
        store.close()

    def test_launches_of_before_the_sent_mark_may_have_been_sent(self, url: str) -> None:
        store = open_store(url)
        add_job(store)
        held = order(store)
        store.close()
        make_older(url, "0007")
        store = open_store(url)
        (intent,) = store.intents.of_instance(held.id)
        assert intent.sent_seconds == intent.not_before_seconds
        store.close()

    def test_step_times_of_before_there_were_eras_are_settled(self, url: str) -> None:
        store = open_store(url)
        add_job(store)
        short = observation(0.1, 10, devices=2)
        store.measurements.add_observations("digits", [observation(0.1, 100), short], NOW)
        store.close()
        make_older(url, "0008")
        store = open_store(url)
        known = {o.devices: o for o in store.measurements.observations("digits")}
        assert known == {1: observation(0.1, 100), 2: replace(short, is_settled=False)}
        store.close()

    def test_jobs_of_the_restart_engine_are_jobs_of_the_roster(self, url: str) -> None:
        store = open_store(url)
        ids = [add_job(store, name) for name in ("digits", "text")]
        held = launch(store, ids[0]).id
        for job, address in zip(ids, ("restart://host:7", "http://restart:8"), strict=True):
            store.jobs.set_lighthouse(job, address)
        store.reports.add(ids[0], report(engine="restart"), ReportOrigin(held, 1, NOW), NOW)
        store.close()
        make_older(url, "0009")
        store = open_store(url)
        jobs = [store.jobs.get(job) for job in ids]
        assert [job.lighthouse for job in jobs] == ["roster://host:7", "http://restart:8"]
        assert jobs[0].report is not None and jobs[0].report.engine == "roster"
        store.close()

    def test_jobs_of_before_there_were_lists_are_found_by_person_team_and_study(
        self, url: str
    ) -> None:
        store = open_store(url)
        trial = replace(spec("trial"), person="ada", team="nlp", study="sweep")
        for job in (spec("digits"), trial):
            store.jobs.add(job, NOW)
        store.close()
        make_older(url, "0014")
        store = open_store(url)
        for wanted, name in (
            (JobFilter(person=OWNER), "digits"),
            (JobFilter(person="ada", team="nlp", study="sweep"), "trial"),
        ):
            assert [job.id for job in store.jobs.page(wanted, JobOrder.OLDEST, 9)] == [name]
        store.close()

    def test_jobs_of_before_are_found_by_the_directory_of_their_checkpoints(
        self, url: str
    ) -> None:
        store = open_store(url)
        directories = {"digits": "/ckpt//digits/", "text": "own", "trial": "/ckpt/digits"}
        for name, directory in directories.items():
            study = "sweep" if name == "trial" else None
            job = replace(spec(name), checkpoint=CheckpointSpec(directory), study=study)
            store.jobs.add(job, NOW)
        store.jobs.add(spec("plain"), NOW)

        def found() -> list[str]:
            return [job.id for job in store.jobs.of_directory("/ckpt/digits")]

        assert found() == ["digits"]
        store.close()
        make_older(url, "0020")
        store = open_store(url)
        assert found() == ["digits"]
        assert store.jobs.of_directory("own") == ()
        store.close()

    def test_the_tables_of_another_program_are_left_alone(self, url: str) -> None:
        execute(url, "CREATE TABLE runs (id INTEGER)")
        with pytest.raises(StoreError, match="another program"):
            open_store(url)
        with pytest.raises(DBAPIError, match="jobs"):
            execute(url, "SELECT * FROM jobs")


class TestSQLiteMigrations(Migrations):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'castor.db'}"


class TestPostgreSQLMigrations(Migrations):
    @pytest.fixture
    def url(self, postgresql: Create) -> str:
        return postgresql()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("castor.db", "can't be read: use sqlite"),
        ("mysql://host/castor", "mysql: not a supported database: use sqlite"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
)
def test_urls_that_name_no_store(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        open_store(url)


def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"postgres:\*\*\*@") as caught:
        open_store(f"postgresql://postgres:secret@/castor?host={tmp_path}")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "castor.db"
    path.write_text("these are words and no database\n" * 100)
    with pytest.raises(StoreError, match="not a database; name another path"):
        open_store(f"sqlite:///{path}")


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="must exist and be writable"):
        open_store(f"sqlite:///{tmp_path / 'nowhere' / 'castor.db'}")


def test_a_directory_without_rights(tmp_path: Path) -> None:
    # A first store is opened before the rights are given up, so that all modules are loaded.
    program = """
import os, sys
from autoscaler.domain.errors import NotLeading, StoreError
from autoscaler.store.opening import open_store, open_to_read
directory = sys.argv[1]
open_store(f"sqlite:///{directory}/first.db").close()
os.chmod(directory, 0o500)
if os.getuid() == 0:
    os.setuid(65534)
try:
    open_store(f"sqlite:///{directory}/second.db")
except StoreError as error:
    print(error)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True)
    assert "must exist and be writable" in said.stdout, said.stderr


def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'castor.db'}"
    open_store(url).close()

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 80")

    event.listen(Pool, "connect", limit)
    store = open_store(url)
    event.remove(Pool, "connect", limit)
    added = 0
    with pytest.raises(StoreError, match="disk is full; free some space"):
        while True:
            store.jobs.add(spec(f"job-{added}"), 0.0)
            added += 1
    assert len(store.jobs.all()) == added > 0
    store.close()


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "castor.db"
    store = open_store(f"sqlite:///{path}")
    store.jobs.add(spec(), 0.0)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {0o600}
    store.close()


def test_every_commit_waits_for_the_disk(
    tmp_path: Path, synced_engine: Callable[[URL], Engine]
) -> None:
    engine = synced_engine(make_url(f"sqlite:///{tmp_path}/castor.db"))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    engine.dispose()


def test_a_damaged_row_is_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'castor.db'}"
    store = open_store(url)
    store.jobs.add(spec(), 0.0)
    execute(url, """UPDATE jobs SET spec = '{"name": 7}'""")
    with pytest.raises(StoreError, match="a stored JobSpec can't be read: name"):
        store.jobs.all()
    store.close()


_WRITER = """
import os, sys
from autoscaler.store.opening import open_store, open_to_read
from tests.conformance.store_examples import spec

store = open_store(sys.argv[1])
with store.jobs._database.read() as one, store.jobs._database.read() as other:
    one.connection(), other.connection()  # the pool makes a second connection
print("open", flush=True)
sys.stdin.readline()
store.jobs.add(spec("kept"), 0.0)
os.kill(os.getpid(), 9)
"""


def test_what_is_written_outlives_another_process_that_closed_the_store(tmp_path: Path) -> None:
    """The locks of a process on a file go when it closes any descriptor of that file."""
    url = f"sqlite:///{tmp_path / 'castor.db'}"
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdin is not None and writer.stdout is not None
    assert writer.stdout.readline() == b"open\n"
    open_store(url).close()
    writer.communicate(b"go\n")
    store = open_store(url)
    assert [job.id for job in store.jobs.alive()] == ["kept"]
    store.close()


def test_only_what_may_be_lost_is_not_synced(
    tmp_path: Path, synced_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_sqlite", synced_engine)
    database = Database(f"sqlite:///{tmp_path}/castor.db")
    for may_be_lost, level in ((True, 1), (False, 2)):  # NORMAL, FULL
        with database.write(may_be_lost) as session:
            found = session.connection().exec_driver_sql("PRAGMA synchronous")
            assert found.scalar() == level
    database.close()


def test_a_store_that_is_missing_or_empty_can_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "castor.db"
    with pytest.raises(StoreError, match=r"castor\.db does not exist"):
        open_to_read(f"sqlite:///{path}")
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreError, match=r"castor\.db is empty: name the store"):
        open_to_read(f"sqlite:///{path}")
    assert path.read_bytes() == b""


def test_a_reader_sees_what_a_controller_writes_meanwhile(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'castor.db'}"
    written = open_store(url)
    add_job(written, "first")
    read = open_to_read(url)
    add_job(written, "second")
    assert [job.id for job in read.jobs.all()] == ["first", "second"]
    read.close()
    add_job(written, "third")
    written.close()


@pytest.mark.parametrize("is_newer", [False, True])
def test_a_store_in_postgresql_is_read_in_this_version_only(
    postgresql: Create, is_newer: bool
) -> None:
    url = postgresql()
    store = open_store(url)
    add_job(store, "first")
    store.close()
    read = open_to_read(url)
    assert [job.id for job in read.jobs.all()] == ["first"]
    with pytest.raises(NotLeading):
        add_job(read, "second")
    read.close()
    other = "9999" if is_newer else "0013"
    execute(url, f"UPDATE alembic_version SET version_num = '{other}'")
    words = "install the newer Castor" if is_newer else "migrate it with castor serve"
    with pytest.raises(StoreError, match=f"tables of version {other}, and this .*{words}"):
        open_to_read(url)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == other
    engine.dispose()
