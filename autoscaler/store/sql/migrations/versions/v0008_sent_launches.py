"""Time at which a launch with an unknown outcome was sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the time to intents, and mark pending launches as sent, since they may have been."""
    op.add_column("intents", sa.Column("sent_seconds", sa.Double(), nullable=True))
    intents = sa.table(
        "intents",
        sa.column("kind", sa.Text),
        sa.column("state", sa.Text),
        sa.column("sent_seconds", sa.Double),
        sa.column("not_before_seconds", sa.Double),
    )
    op.execute(
        intents.update()
        .where(intents.c.kind == "launch", intents.c.state == "pending")
        .values(sent_seconds=intents.c.not_before_seconds)
    )
