"""Opening of a store in a database."""

from __future__ import annotations

from autoscaler.store.sql.audit import SqlAudit
from autoscaler.store.sql.capacity import SqlCapacity
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.events import SqlEvents
from autoscaler.store.sql.fence import WriteFence
from autoscaler.store.sql.instances import SqlInstances
from autoscaler.store.sql.intents import SqlIntents
from autoscaler.store.sql.jobs import SqlJobs, live_jobs
from autoscaler.store.sql.journal import SqlJournal
from autoscaler.store.sql.ledger import SqlLedgerLines
from autoscaler.store.sql.measurements import SqlMeasurements
from autoscaler.store.sql.migration import migrate
from autoscaler.store.sql.owners import SqlOwners
from autoscaler.store.sql.people import SqlPeople
from autoscaler.store.sql.programs import SqlPrograms
from autoscaler.store.sql.reports import SqlReports
from autoscaler.store.sql.retention import SqlRetention
from autoscaler.store.sql.settings import SqlSettings
from autoscaler.store.sql.studies import SqlStudyBook
from autoscaler.store.sql.tokens import SqlTokens
from autoscaler.store.sql.trials import SqlLeases, SqlTrials
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
    live = live_jobs()
    return Store(
        url=database.name,
        version=version,
        jobs=SqlJobs(database, live),
        reports=SqlReports(database, live),
        instances=SqlInstances(database),
        intents=SqlIntents(database),
        capacity=SqlCapacity(database),
        measurements=SqlMeasurements(database),
        programs=SqlPrograms(database),
        trials=SqlTrials(database),
        leases=SqlLeases(database),
        studies=SqlStudyBook(database),
        journal=SqlJournal(database),
        events=SqlEvents(database),
        ledger=SqlLedgerLines(database),
        tokens=SqlTokens(database),
        people=SqlPeople(database),
        owners=SqlOwners(database),
        audit=SqlAudit(database),
        settings=SqlSettings(database),
        retention=SqlRetention(database),
        grouped=database.grouped,
        close=database.close,
    )
