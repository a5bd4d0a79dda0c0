"""Use of instances' time, for receipts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables; nothing is known of the time before."""
    op.create_table(
        "time_uses",
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("kept", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["instance"], ["instances.id"], name="fk_time_uses_instance"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_time_uses_job"),
        sa.PrimaryKeyConstraint("instance", "job", name="pk_time_uses"),
    )
    op.create_index("ix_time_uses_job", "time_uses", ["job"])
    op.create_table(
        "time_days",
        sa.Column("day", sa.Text(), nullable=False),
        sa.Column("used", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("day", name="pk_time_days"),
    )
    op.create_table(
        "lost_work",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("until_seconds", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("steps", _INTEGER, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_lost_work_job"),
        sa.PrimaryKeyConstraint("id", name="pk_lost_work"),
    )
    op.create_index("ix_lost_work_job", "lost_work", ["job"])
