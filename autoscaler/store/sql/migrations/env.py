"""Entry point of Alembic, in the transaction that `autoscaler.store.sql.upgrading` passes.

To change the tables, write the next numbered file of `versions` by hand, then regenerate
`newest.sql` with ``python -m tests.store.newest_tables``. A test compares the result of the
migrations with `autoscaler.store.sql.schema` on both databases.
"""

from __future__ import annotations

from alembic import context

from autoscaler.store.sql import access_schema as _access_schema  # noqa: F401  # adds tables
from autoscaler.store.sql import notice_schema as _notice_schema  # noqa: F401  # adds tables
from autoscaler.store.sql import study_schema as _study_schema  # noqa: F401  # adds tables
from autoscaler.store.sql.schema import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
