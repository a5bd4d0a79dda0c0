"""Changes of speed of the sizes that jobs train on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Take the step times that are known for those of the first era, settled if timed for 5 s."""
    op.add_column("observations", sa.Column("era", _INTEGER, nullable=False, server_default="0"))
    op.add_column(
        "observations",
        sa.Column("settled_seconds", sa.Double(), nullable=False, server_default="0"),
    )
    op.add_column("observations", sa.Column("run", sa.Text(), nullable=True))
    op.execute(
        "UPDATE observations SET settled_seconds = step_seconds WHERE steps * step_seconds >= 5"
    )
