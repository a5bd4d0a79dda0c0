"""Where Alembic enters. It runs in the transaction that `autoscaler.store.upgrading` hands over.

A change of the tables is written by hand as the next file of `versions`, numbered on; a test
compares what the migrations make with `autoscaler.store.schema` on both databases. Then write
`newest.sql` anew: ``python -m tests.store.newest_tables``.
"""

from __future__ import annotations

from alembic import context

from autoscaler.store import study_schema as _study_schema  # noqa: F401  # its tables are Table's too
from autoscaler.store.schema import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
