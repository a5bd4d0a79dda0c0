"""Revision of each job's observations, so that readers see whether these have changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the revision to jobs, 0 for the present observations."""
    op.add_column(
        "jobs",
        sa.Column("observations_revision", _INTEGER, nullable=False, server_default="0"),
    )
