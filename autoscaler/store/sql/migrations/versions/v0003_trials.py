"""Tables of calls between trials and the drivers of their studies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NOT_ANSWERED = sa.text("answer IS NULL")


def upgrade() -> None:
    """Create the tables of incarnations, calls and leases."""
    op.create_table(
        "incarnations",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("number", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("started_seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_incarnations_job"),
        sa.PrimaryKeyConstraint("job", "number", name="pk_incarnations"),
    )
    op.create_table(
        "trial_calls",
        sa.Column("id", _NUMBER, nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("incarnation", _NUMBER, nullable=False),
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_trial_calls_job"),
        sa.PrimaryKeyConstraint("id", name="pk_trial_calls"),
        sa.UniqueConstraint(
            "job", "incarnation", "number", name="uq_trial_calls_job_incarnation_number"
        ),
    )
    op.create_index(
        "ix_trial_calls_waiting",
        "trial_calls",
        ["study", "id"],
        sqlite_where=_NOT_ANSWERED,
        postgresql_where=_NOT_ANSWERED,
    )
    op.create_table(
        "leases",
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("until_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("study", name="pk_leases"),
    )
