"""Tables of study terms and trial records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of studies and trials."""
    op.create_table(
        "studies",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("budget_usd", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_studies"),
    )
    op.create_table(
        "trials",
        sa.Column("id", _NUMBER, nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_trials_job"),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
        sa.UniqueConstraint("job", name="uq_trials_job"),
    )
    op.create_index("ix_trials_study", "trials", ["study"])
