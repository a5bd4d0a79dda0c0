"""Notices to people, and their deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables, empty."""
    op.create_table(
        "notices",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("episode", _INTEGER, nullable=False),
        sa.Column("ended_seconds", sa.Double(), nullable=True),
        sa.Column("notice", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notices"),
    )
    op.create_index(
        "ix_notices_kind_subject_episode", "notices", ["kind", "subject", "episode"], unique=True
    )
    op.create_index("ix_notices_ended_seconds", "notices", ["ended_seconds"])
    op.create_table(
        "deliveries",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("notice", _INTEGER, nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("attempts", _INTEGER, nullable=False),
        sa.Column("next_seconds", sa.Double(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("done_seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["notice"], ["notices.id"], name="fk_deliveries_notice_notices"),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
    )
    op.create_index(
        "ix_deliveries_state_target_next_seconds",
        "deliveries",
        ["state", "target", "next_seconds"],
    )
    op.create_index("ix_deliveries_notice", "deliveries", ["notice"])
