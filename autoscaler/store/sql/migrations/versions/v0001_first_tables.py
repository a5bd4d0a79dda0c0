"""First version of the tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NOT_ENDED = sa.text("phase <> 'ended'")
_REFUSAL = "the ledger is append-only"


def upgrade() -> None:
    """Create all tables."""
    _create_jobs()
    _create_instances()
    _create_ledger()
    _create_measurements()
    _create_journal()
    _create_people()
    _protect_ledger()


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("number", _INTEGER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(20), nullable=False),
        sa.Column("submitted_seconds", sa.Double(), nullable=False),
        sa.Column("started_seconds", sa.Double(), nullable=True),
        sa.Column("ended_seconds", sa.Double(), nullable=True),
        sa.Column("attempt", _INTEGER, nullable=False),
        sa.Column("retry_seconds", sa.Double(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("last_lines", sa.Text(), nullable=False),
        sa.Column("lighthouse", sa.Text(), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("reported_seconds", sa.Double(), nullable=True),
        sa.Column("report_attempt", _INTEGER, nullable=True),
        sa.Column("report_started_seconds", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_jobs"),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
    )
    op.create_index("ix_jobs_name", "jobs", ["name"])
    op.create_table(
        "failures",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("attempt", _INTEGER, nullable=False),
        sa.Column("at_seconds", sa.Double(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_failures_job"),
        sa.PrimaryKeyConstraint("id", name="pk_failures"),
        sa.UniqueConstraint("job", "instance", "attempt", name="uq_failures_job_instance_attempt"),
    )


def _create_instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("slot", _INTEGER, nullable=False),
        sa.Column("generation", _INTEGER, nullable=False),
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("devices_used", _INTEGER, nullable=False),
        sa.Column("usd_per_hour", sa.Text(), nullable=False),
        sa.Column("minimum_billed_seconds", _INTEGER, nullable=False),
        sa.Column("desired", sa.String(20), nullable=False),
        sa.Column("phase", sa.String(20), nullable=False),
        sa.Column("requested_seconds", sa.Double(), nullable=False),
        sa.Column("cloud_id", sa.Text(), nullable=True),
        sa.Column("launched_seconds", sa.Double(), nullable=True),
        sa.Column("joined_seconds", sa.Double(), nullable=True),
        sa.Column("training_seconds", sa.Double(), nullable=True),
        sa.Column("draining_seconds", sa.Double(), nullable=True),
        sa.Column("ended_seconds", sa.Double(), nullable=True),
        sa.Column("seen_seconds", sa.Double(), nullable=True),
        sa.Column("reclaim_seconds", sa.Double(), nullable=True),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("report_started_seconds", sa.Double(), nullable=True),
        sa.Column("report_step", _INTEGER, nullable=True),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_instances_job"),
        sa.PrimaryKeyConstraint("id", name="pk_instances"),
        sa.UniqueConstraint("job", "slot", "generation", name="uq_instances_job_slot_generation"),
    )
    op.create_index(
        "ix_instances_held",
        "instances",
        ["job", "slot"],
        unique=True,
        sqlite_where=_NOT_ENDED,
        postgresql_where=_NOT_ENDED,
    )
    op.create_table(
        "intents",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("attempts", _INTEGER, nullable=False),
        sa.Column("not_before_seconds", sa.Double(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["instance"], ["instances.id"], name="fk_intents_instance"),
        sa.PrimaryKeyConstraint("id", name="pk_intents"),
        sa.UniqueConstraint("instance", "kind", name="uq_intents_instance_kind"),
    )
    op.create_index("ix_intents_state", "intents", ["state"])
    op.create_table(
        "refusals",
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("error_kind", sa.Text(), nullable=False),
        sa.Column("in_a_row", _INTEGER, nullable=False),
        sa.Column("until_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("offer", name="pk_refusals"),
    )


def _create_ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("usd_per_hour", sa.Text(), nullable=False),
        sa.Column("at_seconds", sa.Double(), nullable=False),
        sa.Column("minimum_billed_seconds", _INTEGER, nullable=False),
        sa.ForeignKeyConstraint(["instance"], ["instances.id"], name="fk_ledger_instance"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_ledger_job"),
        sa.PrimaryKeyConstraint("id", name="pk_ledger"),
        sa.UniqueConstraint(
            "instance", "kind", "at_seconds", name="uq_ledger_instance_kind_at_seconds"
        ),
    )
    op.create_index("ix_ledger_job", "ledger", ["job"])


def _create_measurements() -> None:
    op.create_table(
        "observations",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("device_kind", sa.Text(), nullable=False),
        sa.Column("instances", _INTEGER, nullable=False),
        sa.Column("devices", _INTEGER, nullable=False),
        sa.Column("device_batch", _INTEGER, nullable=False),
        sa.Column("accumulation", _INTEGER, nullable=False),
        sa.Column("step_seconds", sa.Double(), nullable=False),
        sa.Column("sync_seconds", sa.Double(), nullable=False),
        sa.Column("steps", sa.Double(), nullable=False),
        sa.Column("updated_seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_observations_job"),
        sa.PrimaryKeyConstraint(
            "job",
            "device_kind",
            "instances",
            "devices",
            "device_batch",
            "accumulation",
            name="pk_observations",
        ),
    )
    op.create_table(
        "durations",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("mean_seconds", sa.Double(), nullable=False),
        sa.Column("count", _INTEGER, nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_durations_job"),
        sa.PrimaryKeyConstraint("job", "offer", "what", name="pk_durations"),
    )
    op.create_table(
        "noise",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("progress_examples", sa.Double(), nullable=False),
        sa.Column("noise", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_noise_job"),
        sa.PrimaryKeyConstraint("id", name="pk_noise"),
    )
    op.create_index("ix_noise_job", "noise", ["job"])
    op.create_table(
        "models",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("models", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_models_job"),
        sa.PrimaryKeyConstraint("job", name="pk_models"),
    )


def _create_journal() -> None:
    op.create_table(
        "plans",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("tick", _INTEGER, nullable=False),
        sa.Column("at_seconds", sa.Double(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_index("ix_plans_at_seconds", "plans", ["at_seconds"])
    op.create_table(
        "pieces",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("used_seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_pieces"),
    )
    op.create_index("ix_pieces_used_seconds", "pieces", ["used_seconds"])
    op.create_table(
        "decisions",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("plan", _INTEGER, nullable=False),
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["plan"], ["plans.id"], name="fk_decisions_plan"),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
    )
    op.create_index("ix_decisions_job_id", "decisions", ["job", "id"])
    op.create_index("ix_decisions_plan", "decisions", ["plan"])
    op.create_table(
        "events",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("at_seconds", sa.Double(), nullable=False),
        sa.Column("job", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
    )
    op.create_index("ix_events_at_seconds", "events", ["at_seconds"])
    op.create_index("ix_events_job_id", "events", ["job", "id"])


def _create_people() -> None:
    op.create_table(
        "join_tokens",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("expires_seconds", sa.Double(), nullable=False),
        sa.Column("burned_seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["instance"], ["instances.id"], name="fk_join_tokens_instance"),
        sa.PrimaryKeyConstraint("hash", name="pk_join_tokens"),
    )
    op.create_table(
        "people",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_people"),
        sa.UniqueConstraint("token_hash", name="uq_people_token_hash"),
    )
    op.create_table(
        "settings",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_settings"),
    )


def _protect_ledger() -> None:
    """Make the database refuse to change, delete or empty the lines of the ledger."""
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER ledger_refuses_{change.lower()} BEFORE {change} ON ledger "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION refuse_change_of_ledger() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER ledger_refuses_change BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_ledger()"
    )
