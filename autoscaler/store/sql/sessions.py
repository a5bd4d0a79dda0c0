"""Check that connections to PostgreSQL are sessions of their own.

A pooler of transactions, such as PgBouncer with `pool_mode = transaction`, gives each transaction
another session of the server. Timeouts that were set for a session are then lost, or hold for
another client.
"""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from autoscaler.domain.errors import StoreError
from autoscaler.store.sql.database import driver_message

_SET: Final = text("SELECT set_config('castor.session', :value, false)")
_GET: Final = text("SELECT current_setting('castor.session', true)")
_TIMEOUT: Final = text("SELECT current_setting('idle_in_transaction_session_timeout')")


def require_sessions(engine: Engine, name: str) -> None:
    """Check that the state of a session is kept from one transaction to the next.

    Raises:
        StoreError: it is lost or shared, or the database does not answer.
    """
    try:
        with engine.connect() as first, engine.connect() as second:
            are_kept = _are_kept((first, second)) and _value(first, _TIMEOUT) != "0"
    except DBAPIError as error:
        raise StoreError(f"store {name}: {driver_message(error)}") from error
    if not are_kept:
        raise StoreError(
            f"store {name}: its connections are no sessions, as behind a pooler of transactions "
            "(PgBouncer with pool_mode=transaction): name the server itself, or use "
            "pool_mode=session"
        )


def _are_kept(connections: tuple[Connection, ...]) -> bool:
    """Return whether each connection still has the value that it set in an earlier transaction."""
    values = [uuid4().hex for _ in connections]
    for connection, value in zip(connections, values, strict=True):
        connection.execute(_SET, {"value": value})
        connection.commit()
    return all(
        _value(connection, _GET) == value
        for connection, value in zip(connections, values, strict=True)
    )


def _value(connection: Connection, query: object) -> str | None:
    value: str | None = connection.execute(query).scalar()  # type: ignore[call-overload]
    connection.commit()
    return value
