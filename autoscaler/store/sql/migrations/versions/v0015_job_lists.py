"""Columns and indexes of jobs by which lists of jobs are filtered."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_OWNER = "owner"
_INDEXED = ("phase", "person", "team", "study")


def upgrade() -> None:
    """Copy person, team and study of each job's spec to columns of their own."""
    op.add_column("jobs", sa.Column("person", sa.Text(), nullable=False, server_default=_OWNER))
    op.add_column("jobs", sa.Column("team", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("study", sa.Text(), nullable=True))
    connection = op.get_bind()
    rows = connection.execute(sa.text("SELECT number, spec FROM jobs")).all()
    for number, text in rows:
        spec = json.loads(text)
        values = {
            "number": number,
            "person": spec.get("person") or _OWNER,
            "team": spec.get("team"),
            "study": spec.get("study"),
        }
        connection.execute(
            sa.text(
                "UPDATE jobs SET person = :person, team = :team, study = :study "
                "WHERE number = :number"
            ),
            values,
        )
    for column in _INDEXED:
        op.create_index(f"ix_jobs_{column}", "jobs", [column])
