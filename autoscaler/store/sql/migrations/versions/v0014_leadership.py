"""Lease of the controller that leads the store."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table, without its one row, which the first leader adds."""
    op.create_table(
        "leadership",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("epoch", _INTEGER, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("expires_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_leadership"),
    )
