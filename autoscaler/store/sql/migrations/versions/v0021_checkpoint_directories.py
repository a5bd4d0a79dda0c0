"""Column and index of jobs by the absolute directory of their checkpoints."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Copy the absolute directory of each job's spec to a column; trials of studies share one."""
    op.add_column("jobs", sa.Column("checkpoint_directory", sa.Text(), nullable=True))
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT number, spec FROM jobs WHERE study IS NULL")).all()
    for number, text in rows:
        directory = (json.loads(text).get("checkpoint") or {}).get("directory")
        if directory is None or not PurePosixPath(directory).is_absolute():
            continue
        connection.execute(
            sa.text("UPDATE jobs SET checkpoint_directory = :directory WHERE number = :number"),
            {"number": number, "directory": str(PurePosixPath(directory))},
        )
    op.create_index("ix_jobs_checkpoint_directory", "jobs", ["checkpoint_directory"])
