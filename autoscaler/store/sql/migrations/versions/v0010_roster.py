"""New name `roster` of an engine, in lighthouse addresses and reports of jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Rename the engine `restart` to `roster` in addresses and in the text of JSON documents."""
    jobs = sa.table("jobs", sa.column("lighthouse", sa.Text), sa.column("report", sa.Text))
    old_scheme, new_scheme = "restart://", "roster://"
    op.execute(
        jobs.update()
        .where(jobs.c.lighthouse.startswith(old_scheme))
        .values(
            lighthouse=sa.literal(new_scheme)
            + sa.func.substr(jobs.c.lighthouse, len(old_scheme) + 1)
        )
    )
    old_field = '"engine":"restart"'
    op.execute(
        jobs.update()
        .where(jobs.c.report.contains(old_field))
        .values(report=sa.func.replace(jobs.c.report, old_field, '"engine":"roster"'))
    )
