"""How much of a price is for what is billed beside an instance."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add it to instances and to the ledger; nothing had any before."""
    for table in ("instances", "ledger"):
        extras = sa.Column("extras_usd_per_hour", sa.Text(), nullable=False, server_default="0")
        op.add_column(table, extras)
