"""Answers to requests with an idempotency key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "kept_answers",
        sa.Column("key_hash", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("status", _INTEGER, nullable=False),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("at_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key_hash", name="pk_kept_answers"),
    )
    op.create_index("ix_kept_answers_at_seconds", "kept_answers", ["at_seconds"])
