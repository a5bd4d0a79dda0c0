"""Samples of jobs' reports, for series over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table of samples, and add the mark of the last sample to jobs."""
    op.create_table(
        "samples",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("at_seconds", sa.Double(), nullable=False),
        sa.Column("progress_examples", sa.Double(), nullable=False),
        sa.Column("batch", _INTEGER, nullable=False),
        sa.Column("learning_rate", sa.Double()),
        sa.Column("goodput", sa.Double()),
        sa.Column("noise_examples", sa.Double()),
        sa.Column("loss", sa.Double()),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_samples_job"),
        sa.PrimaryKeyConstraint("id", name="pk_samples"),
    )
    op.create_index("ix_samples_job_id", "samples", ["job", "id"])
    op.add_column("jobs", sa.Column("sampled_seconds", sa.Double()))
    op.add_column(
        "jobs",
        sa.Column("sample_spacing_seconds", sa.Double(), nullable=False, server_default="1.0"),
    )
    op.add_column("jobs", sa.Column("sample_count", _INTEGER, nullable=False, server_default="0"))
