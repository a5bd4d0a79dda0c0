"""Part of a price for items that are billed beside an instance, in US dollars per hour."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the extras to instances and to the ledger, 0 for existing rows."""
    for table in ("instances", "ledger"):
        extras = sa.Column("extras_usd_per_hour", sa.Text(), nullable=False, server_default="0")
        op.add_column(table, extras)
