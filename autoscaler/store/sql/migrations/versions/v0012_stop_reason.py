"""Budget that stopped a job, so that no reader compares the text of its cause."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the reason to jobs, none for jobs that have been stopped before."""
    op.add_column("jobs", sa.Column("stop_reason", sa.String(20)))
