"""Reason of a refused offer, as text of the cloud."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the reason, empty for earlier refusals."""
    reason = sa.Column("reason", sa.Text(), nullable=False, server_default="")
    op.add_column("refusals", reason)
