"""What instances send to where jobs keep their files, and fetch from there, and what it costs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add it to instances, where it costs those that there are nothing, and to the ledger."""
    account = sa.Column("transfer", sa.Text(), nullable=False, server_default="{}")
    op.add_column("instances", account)
    op.add_column("ledger", sa.Column("usd", sa.Text(), nullable=False, server_default="0"))
    for name in ("sent_bytes", "fetched_bytes"):
        op.add_column("ledger", sa.Column(name, _INTEGER, nullable=False, server_default="0"))
