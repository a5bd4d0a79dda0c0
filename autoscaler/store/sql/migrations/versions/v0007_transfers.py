"""Bytes that instances send to and fetch from the storage of jobs, and their cost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add transfers to instances, at no cost for existing ones, and to the ledger."""
    account = sa.Column("transfer", sa.Text(), nullable=False, server_default="{}")
    op.add_column("instances", account)
    op.add_column("ledger", sa.Column("usd", sa.Text(), nullable=False, server_default="0"))
    for name in ("sent_bytes", "fetched_bytes"):
        op.add_column("ledger", sa.Column(name, _INTEGER, nullable=False, server_default="0"))
