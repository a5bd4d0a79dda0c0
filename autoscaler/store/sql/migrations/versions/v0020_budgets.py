"""Budgets of people, teams, studies and the fleet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "budgets",
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("month_usd", sa.Text(), nullable=True),
        sa.Column("total_usd", sa.Text(), nullable=True),
        sa.Column("hourly_usd", sa.Text(), nullable=True),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_budgets"),
    )
