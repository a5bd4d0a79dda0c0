"""Roles and teams of people, several tokens a person, owners, node tokens, the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_REFUSAL = "the audit log is append-only"
_OWNER = "owner"


def upgrade() -> None:
    """Create the tables of access, and fill them from those of before."""
    _replace_people()
    _create_node_tokens()
    _create_owners()
    _create_audit()
    _protect_audit()


def _replace_people() -> None:
    """Give each person a role, and move the tokens to a table of their own.

    Persons could do everything but invite, so that they become operators. Their tokens never
    expired, and still do not: nobody would know why they stop.
    """
    connection = op.get_bind()
    people = connection.execute(sa.text("SELECT name, token_hash FROM people")).all()
    op.drop_table("people")
    new_people = op.create_table(
        "people",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("team", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_people"),
    )
    tokens = op.create_table(
        "access_tokens",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_seconds", sa.Double(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_seconds", sa.Double(), nullable=True),
        sa.Column("role", sa.String(20), nullable=True),
        sa.Column("is_service", sa.Boolean(), nullable=False),
        sa.Column("used_seconds", sa.Double(), nullable=True),
        sa.Column("revoked_seconds", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("hash", name="pk_access_tokens"),
    )
    op.create_index("ix_access_tokens_person", "access_tokens", ["person"])
    for name, token_hash in people:
        role = "admin" if name == _OWNER else "operator"
        connection.execute(new_people.insert().values(name=name, role=role))
        connection.execute(
            tokens.insert().values(
                hash=token_hash,
                person=name,
                name="client.json" if name == _OWNER else "invitation",
                created_seconds=0.0,
                created_by=_OWNER,
                is_service=False,
            )
        )


def _create_node_tokens() -> None:
    op.add_column("join_tokens", sa.Column("key_hash", sa.Text(), nullable=True))
    op.create_table(
        "node_tokens",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("instance", sa.Text(), nullable=False),
        sa.Column("issued_seconds", sa.Double(), nullable=False),
        sa.Column("expires_seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["instance"], ["instances.id"], name="fk_node_tokens_instance"),
        sa.PrimaryKeyConstraint("hash", name="pk_node_tokens"),
    )
    op.create_index("ix_node_tokens_instance", "node_tokens", ["instance"])


def _create_owners() -> None:
    """Create the table of owners; a study or program belongs to the person of its first job."""
    owners = op.create_table(
        "owners",
        sa.Column("id", _INTEGER, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_owners"),
    )
    op.create_index(
        "ix_owners_kind_name_person", "owners", ["kind", "name", "person"], unique=True
    )
    first_person: dict[tuple[str, str], str] = {}
    for kind, name, person in _owned():
        first_person.setdefault((kind, name), person)
    for (kind, name), person in first_person.items():
        op.execute(owners.insert().values(kind=kind, name=name, person=person))


def _owned() -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and person of all studies and programs, the oldest jobs first."""
    connection = op.get_bind()
    for (text,) in connection.execute(sa.text("SELECT spec FROM jobs ORDER BY number")).all():
        spec = json.loads(text)
        person = spec.get("person") or _OWNER
        if spec.get("study"):
            yield "study", spec["study"], person
        yield "program", spec.get("program") or spec["name"], person
    for (study,) in connection.execute(sa.text("SELECT name FROM studies")).all():
        yield "study", study, _OWNER
    for (program,) in connection.execute(sa.text("SELECT program FROM programs")).all():
        yield "program", program, _OWNER


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("number", _INTEGER, nullable=False),
        sa.Column("at_seconds", sa.Double(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
    op.create_index("ix_audit_at_seconds", "audit", ["at_seconds"])
    op.create_index("ix_audit_subject_action", "audit", ["subject", "action"])


def _protect_audit() -> None:
    """Make the database refuse to change, delete or empty the rows of the audit log."""
    if op.get_bind().dialect.name == "sqlite":
        for change in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_refuses_{change.lower()} BEFORE {change} ON audit "
                f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
            )
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION refuse_change_of_audit() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_refuses_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_audit()"
    )
