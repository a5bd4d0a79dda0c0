"""All that the controller must not forget, in one database."""

from __future__ import annotations

from autoscaler.store.capacity import Capacity
from autoscaler.store.database import Database
from autoscaler.store.events import Events
from autoscaler.store.instances import Instances
from autoscaler.store.intents import Intents
from autoscaler.store.jobs import Jobs
from autoscaler.store.journal import Journal
from autoscaler.store.ledger import LedgerLines
from autoscaler.store.measurements import Measurements
from autoscaler.store.migration import migrate
from autoscaler.store.reports import Reports
from autoscaler.store.settings import Settings
from autoscaler.store.tokens import Tokens


class Store:
    """One attribute for each aggregate; every method of theirs is one transaction.

    Safe to share between threads; other processes may have the same database open. What is
    returned are values that no later change touches. Every method may raise `StoreError`: the
    database refused or did not answer, and nothing was changed, except perhaps where the
    connection to it broke during the commit itself.
    """

    def __init__(self, database: Database, version: str) -> None:
        self._database = database
        self.url = database.name
        self.version = version
        self.jobs = Jobs(database)
        self.reports = Reports(database)
        self.instances = Instances(database)
        self.intents = Intents(database)
        self.capacity = Capacity(database)
        self.measurements = Measurements(database)
        self.journal = Journal(database)
        self.events = Events(database)
        self.ledger = LedgerLines(database)
        self.tokens = Tokens(database)
        self.settings = Settings(database)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


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
        return Store(database, migrate(database))
    except BaseException:
        database.close()
        raise
