"""Tables of access: people, tokens, budgets, tokens of instances, owners, the audit log."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from autoscaler.domain.access import Role
from autoscaler.domain.budget import ScopeKind
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.sql.columns import word
from autoscaler.store.sql.schema import Table


class PersonRow(Table):
    """A person who may use the service."""

    __tablename__ = "people"

    name: Mapped[str] = mapped_column(primary_key=True)
    role: Mapped[Role] = mapped_column(word(Role))
    team: Mapped[str | None]


class AccessTokenRow(Table):
    """A token of a person. Only its hash is stored. It outlives its person."""

    __tablename__ = "access_tokens"

    hash: Mapped[str] = mapped_column(primary_key=True)
    person: Mapped[str] = mapped_column(index=True)
    name: Mapped[str]
    created_seconds: Mapped[float]
    created_by: Mapped[str]
    expires_seconds: Mapped[float | None]
    role: Mapped[Role | None] = mapped_column(word(Role))
    is_service: Mapped[bool]
    used_seconds: Mapped[float | None]
    revoked_seconds: Mapped[float | None]


class JoinTokenRow(Table):
    """A token that lets one instance join. Only its hash is stored.

    The agent that joined may join again for a short time, as `key_hash` identifies it; None: not.
    """

    __tablename__ = "join_tokens"

    hash: Mapped[str] = mapped_column(primary_key=True)
    instance: Mapped[str] = mapped_column(ForeignKey("instances.id"))
    expires_seconds: Mapped[float]
    burned_seconds: Mapped[float | None]
    key_hash: Mapped[str | None]


class NodeTokenRow(Table):
    """A token of an instance that has joined. Only its hash is stored."""

    __tablename__ = "node_tokens"

    hash: Mapped[str] = mapped_column(primary_key=True)
    instance: Mapped[str] = mapped_column(ForeignKey("instances.id"), index=True)
    issued_seconds: Mapped[float]
    expires_seconds: Mapped[float]


class OwnerRow(Table):
    """An owner of a study, a program or a bundle. The first one has the lowest `id`."""

    __tablename__ = "owners"
    __table_args__ = (Index(None, "kind", "name", "person", unique=True),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[OwnedKind] = mapped_column(word(OwnedKind))
    name: Mapped[str]
    person: Mapped[str]
    team: Mapped[str | None]


class BudgetRow(Table):
    """A budget. The fleet has an empty `name`."""

    __tablename__ = "budgets"

    kind: Mapped[ScopeKind] = mapped_column(word(ScopeKind), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    month_usd: Mapped[Decimal | None]
    total_usd: Mapped[Decimal | None]
    hourly_usd: Mapped[Decimal | None]
    zone: Mapped[str]


class AuditRow(Table):
    """A row of the audit log. The database refuses to change or delete rows."""

    __tablename__ = "audit"
    __table_args__ = (Index(None, "subject", "action"),)

    number: Mapped[int] = mapped_column(primary_key=True)
    at_seconds: Mapped[float] = mapped_column(index=True)
    person: Mapped[str]
    token: Mapped[str]
    role: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    before: Mapped[str]
    after: Mapped[str]
