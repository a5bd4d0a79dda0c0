"""The name `roster` of an engine, in lighthouses and reports of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Give the engine that was called `restart` its name, in the text of JSON documents, too."""
    jobs = sa.table("jobs", sa.column("lighthouse", sa.Text), sa.column("report", sa.Text))
    old, new = "restart://", "roster://"
    op.execute(
        jobs.update()
        .where(jobs.c.lighthouse.startswith(old))
        .values(lighthouse=sa.literal(new) + sa.func.substr(jobs.c.lighthouse, len(old) + 1))
    )
    written = '"engine":"restart"'
    op.execute(
        jobs.update()
        .where(jobs.c.report.contains(written))
        .values(report=sa.func.replace(jobs.c.report, written, '"engine":"roster"'))
    )
