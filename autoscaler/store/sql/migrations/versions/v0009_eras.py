"""Eras of step times: changes of speed of the sizes that jobs train on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Assign known step times to the first era, as settled if they cover at least 5 s."""
    op.add_column("observations", sa.Column("era", _INTEGER, nullable=False, server_default="0"))
    op.add_column(
        "observations",
        sa.Column("settled_seconds", sa.Double(), nullable=False, server_default="0"),
    )
    op.add_column("observations", sa.Column("run", sa.Text(), nullable=True))
    op.execute(
        "UPDATE observations SET settled_seconds = step_seconds WHERE steps * step_seconds >= 5"
    )
