"""Opening of a store in a database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from autoscaler.domain.errors import StoreError
from autoscaler.store.sql.answers import SqlAnswers
from autoscaler.store.sql.audit import SqlAudit
from autoscaler.store.sql.budgets import SqlBudgets
from autoscaler.store.sql.capacity import SqlCapacity
from autoscaler.store.sql.database import Database, is_sqlite, parse_url
from autoscaler.store.sql.events import SqlEvents
from autoscaler.store.sql.fence import WriteFence
from autoscaler.store.sql.instances import SqlInstances
from autoscaler.store.sql.intents import SqlIntents
from autoscaler.store.sql.job_facts import FactCache
from autoscaler.store.sql.jobs import SqlJobs, live_jobs
from autoscaler.store.sql.journal import SqlJournal
from autoscaler.store.sql.leases import SqlLeases
from autoscaler.store.sql.ledger import SqlLedgerLines
from autoscaler.store.sql.measurements import SqlMeasurements
from autoscaler.store.sql.migration import found_version, migrate, newest_version
from autoscaler.store.sql.notices import SqlNotices
from autoscaler.store.sql.owners import SqlOwners
from autoscaler.store.sql.people import SqlPeople
from autoscaler.store.sql.programs import SqlPrograms
from autoscaler.store.sql.reports import SqlReports
from autoscaler.store.sql.retention import SqlRetention
from autoscaler.store.sql.settings import SqlSettings
from autoscaler.store.sql.sqlite_copy import copy_sqlite
from autoscaler.store.sql.studies import SqlStudyBook
from autoscaler.store.sql.time_uses import SqlTimeUses
from autoscaler.store.sql.tokens import SqlTokens
from autoscaler.store.sql.trials import SqlTrials
from autoscaler.store.store import Store


def open_store(url: str, fence: WriteFence | None = None) -> Store:
    """Open a store, and migrate its tables to the version of this code.

    Args:
        url: `sqlite:////path/to/castor.db`, created if it is missing, or
            `postgresql://user@host/database`, which must exist.
        fence: permission to write, which the process has while it leads; None for tools and
            tests.

    Raises:
        StoreError: the database can't be opened, is not a database, or is of a newer version, or a
            controller leads one of an earlier version.
    """
    database = Database(url)
    try:
        version = migrate(database)
    except BaseException:
        database.close()
        raise
    database.fence = fence
    return _store_in(database, version)


def open_to_read(url: str) -> Store:
    """Open an existing store for a command that only reads, while any controller may use it.

    Nothing is changed: neither the tables are migrated nor is a file created, and writes are
    refused. A store in SQLite that has an earlier version is read from a migrated copy, which
    `close` deletes.

    Raises:
        StoreError: the store is missing, is not a store or is of a newer version, or is in
            PostgreSQL and of an earlier one.
    """
    parsed = parse_url(url)
    path = Path(parsed.database or "") if is_sqlite(parsed) else None
    if path is not None and not path.is_file():
        raise StoreError(f"{path} does not exist: name the store of a controller")
    database, newest = Database(url, reads_only=True), newest_version()
    try:
        version = found_version(database)
    except BaseException:
        database.close()
        raise
    if version == newest:
        return _store_in(database, version)
    database.close()
    if path is not None:
        return _copied_and_migrated(path)
    raise StoreError(
        f"store {database.name} has tables of version {version}, and this Castor reads version "
        f"{newest}: use the Castor that serves it, or migrate it with castor serve of this one"
    )


def _copied_and_migrated(path: Path) -> Store:
    directory = TemporaryDirectory(prefix="castor-read-")
    try:
        copy = Path(directory.name) / path.name
        copy_sqlite(path, copy)
        database = Database(f"sqlite:///{copy}")
        try:
            version = migrate(database, keeps_copy=False)
        except BaseException:
            database.close()
            raise
    except BaseException:
        directory.cleanup()
        raise
    database.fence = WriteFence()
    store = _store_in(database, version)

    def close() -> None:
        store.close()
        directory.cleanup()

    return replace(store, close=close)


def _store_in(database: Database, version: str) -> Store:
    """Return the repositories of an open database whose tables have this code's version."""
    live = live_jobs()
    facts = FactCache(database, live)
    return Store(
        url=database.name,
        version=version,
        jobs=SqlJobs(database, live),
        reports=SqlReports(database, live, facts),
        instances=SqlInstances(database, facts),
        intents=SqlIntents(database),
        capacity=SqlCapacity(database),
        measurements=SqlMeasurements(database, facts),
        programs=SqlPrograms(database, facts),
        trials=SqlTrials(database),
        leases=SqlLeases(database),
        studies=SqlStudyBook(database),
        journal=SqlJournal(database),
        events=SqlEvents(database),
        ledger=SqlLedgerLines(database, facts),
        time_uses=SqlTimeUses(database),
        tokens=SqlTokens(database),
        people=SqlPeople(database),
        owners=SqlOwners(database),
        budgets=SqlBudgets(database),
        audit=SqlAudit(database),
        answers=SqlAnswers(database),
        notices=SqlNotices(database),
        settings=SqlSettings(database),
        retention=SqlRetention(database),
        grouped=database.grouped,
        close=database.close,
    )
