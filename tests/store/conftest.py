"""Databases for the tests of the store: an SQLite file for each test, one PostgreSQL server."""

from __future__ import annotations

import pytest

from autoscaler.store.opening import open_store
from autoscaler.store.sql.schema import Table
from tests.builders.postgresql import Create, postgresql
from tests.conformance.store_examples import execute

__all__ = ("Create", "postgresql")


@pytest.fixture(scope="session")
def migrated_database(postgresql: Create) -> str:
    """Yield the URL of a store that each test empties first."""
    url = postgresql()
    open_store(url).close()
    return url


def empty(url: str) -> str:
    """Empty a store of PostgreSQL, which takes less time than to create one."""
    tables = ", ".join(table.name for table in Table.metadata.sorted_tables)
    # A replica fires no triggers: those of the ledger would refuse.
    replica = "SET LOCAL session_replication_role = replica"
    execute(url, f"{replica}; TRUNCATE {tables} RESTART IDENTITY")
    return url
