"""Table of program memories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table of programs."""
    op.create_table(
        "programs",
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("memory", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("program", name="pk_programs"),
    )
