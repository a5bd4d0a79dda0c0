"""All that the controller must not forget, in one database, or in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscaler.store.capacity import Capacity
from autoscaler.store.database import Database
from autoscaler.store.events import Events
from autoscaler.store.instances import Instances
from autoscaler.store.intents import Intents
from autoscaler.store.jobs import Jobs
from autoscaler.store.journal import Journal
from autoscaler.store.ledger import LedgerLines
from autoscaler.store.measurements import Measurements
from autoscaler.store.memory.capacity import MemoryCapacity
from autoscaler.store.memory.events import MemoryEvents
from autoscaler.store.memory.instances import MemoryInstances
from autoscaler.store.memory.intents import MemoryIntents
from autoscaler.store.memory.jobs import MemoryJobs
from autoscaler.store.memory.journal import MemoryJournal
from autoscaler.store.memory.ledger import MemoryLedgerLines
from autoscaler.store.memory.measurements import MemoryMeasurements
from autoscaler.store.memory.programs import MemoryPrograms
from autoscaler.store.memory.reports import MemoryReports
from autoscaler.store.memory.settings import MemorySettings
from autoscaler.store.memory.tables import Tables
from autoscaler.store.memory.tokens import MemoryTokens
from autoscaler.store.memory.trials import MemoryLeases, MemoryTrials
from autoscaler.store.migration import migrate
from autoscaler.store.programs import Programs
from autoscaler.store.reports import Reports
from autoscaler.store.settings import Settings
from autoscaler.store.sql.capacity import SqlCapacity
from autoscaler.store.sql.events import SqlEvents
from autoscaler.store.sql.instances import SqlInstances
from autoscaler.store.sql.intents import SqlIntents
from autoscaler.store.sql.jobs import SqlJobs
from autoscaler.store.sql.journal import SqlJournal
from autoscaler.store.sql.ledger import SqlLedgerLines
from autoscaler.store.sql.measurements import SqlMeasurements
from autoscaler.store.sql.programs import SqlPrograms
from autoscaler.store.sql.reports import SqlReports
from autoscaler.store.sql.settings import SqlSettings
from autoscaler.store.sql.tokens import SqlTokens
from autoscaler.store.sql.trials import SqlLeases, SqlTrials
from autoscaler.store.tokens import Tokens
from autoscaler.store.trials import Leases, Trials


@dataclass(frozen=True, eq=False)
class Store:
    """One attribute for each aggregate; every method of theirs is one transaction.

    Safe to share between threads; other processes may have the same database open. What is
    returned are values that no later change touches. Every method may raise `StoreError`: the
    database refused or did not answer, and nothing was changed, except perhaps where the
    connection to it broke during the commit itself. `close` closes the connections.
    """

    url: str
    version: str
    jobs: Jobs
    reports: Reports
    instances: Instances
    intents: Intents
    capacity: Capacity
    measurements: Measurements
    programs: Programs
    trials: Trials
    leases: Leases
    journal: Journal
    events: Events
    ledger: LedgerLines
    tokens: Tokens
    settings: Settings
    close: Callable[[], None]


def open_store(url: str) -> Store:
    """Open a store, and bring its tables to the version of this code.

    Args:
        url: `sqlite:////path/to/castor.db`, made if it is missing, or
            `postgresql://user@host/database`, which must exist.

    Raises:
        StoreError: the database can't be opened, is no database, or a newer Castor wrote it.
    """
    database = Database(url)
    try:
        version = migrate(database)
    except BaseException:
        database.close()
        raise
    return Store(
        url=database.name,
        version=version,
        jobs=SqlJobs(database),
        reports=SqlReports(database),
        instances=SqlInstances(database),
        intents=SqlIntents(database),
        capacity=SqlCapacity(database),
        measurements=SqlMeasurements(database),
        programs=SqlPrograms(database),
        trials=SqlTrials(database),
        leases=SqlLeases(database),
        journal=SqlJournal(database),
        events=SqlEvents(database),
        ledger=SqlLedgerLines(database),
        tokens=SqlTokens(database),
        settings=SqlSettings(database),
        close=database.close,
    )


def memory_store(inputs_kept: int = 100) -> Store:
    """A new store in memory, for simulations: it dies with its process, and a call costs little.

    Args:
        inputs_kept: of how many plans, the last ones, the journal keeps the snapshot.
    """
    tables = Tables()
    measurements = MemoryMeasurements(tables)
    return Store(
        url="memory",
        version="memory",
        jobs=MemoryJobs(tables),
        reports=MemoryReports(tables, measurements),
        instances=MemoryInstances(tables),
        intents=MemoryIntents(tables),
        capacity=MemoryCapacity(tables),
        measurements=measurements,
        programs=MemoryPrograms(tables),
        trials=MemoryTrials(tables),
        leases=MemoryLeases(tables),
        journal=MemoryJournal(tables, inputs_kept),
        events=MemoryEvents(tables),
        ledger=MemoryLedgerLines(tables),
        tokens=MemoryTokens(tables),
        settings=MemorySettings(tables),
        close=lambda: None,
    )
