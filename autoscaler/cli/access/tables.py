"""Tables of people, tokens and the audit log."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from autoscaler.cli.programs.tables import local_time
from autoscaler.cli.tables import words_table
from autoscaler.domain.access import AccessToken
from autoscaler.domain.audit import AuditEntry
from autoscaler.wire.access_messages import PersonView


def people_table(people: Sequence[PersonView]) -> Table:
    """Return a table with a row for each person."""
    table = _table("person", "role", "team", "tokens", "last used")
    for person in people:
        used = _time(person.used_seconds)
        table.add_row(person.name, person.role, person.team or "-", str(person.tokens), used)
    return table


def tokens_table(tokens: Sequence[AccessToken], now_seconds: float) -> Table:
    """Return a table with a row for each token."""
    table = _table("token", "role", "state", "expires", "last used", "created by")
    for token in tokens:
        role = "of the person" if token.role is None else token.role.value
        table.add_row(
            token.name,
            f"{role}, service" if token.is_service else role,
            _state(token, now_seconds),
            _time(token.expires_seconds),
            _time(token.used_seconds),
            token.created_by,
        )
    return table


def audit_table(rows: Sequence[AuditEntry]) -> Table:
    """Return a table with a row for each change, the latest first."""
    table = _table("time", "person", "token", "role", "action", "subject", "before", "after")
    for row in rows:
        words = row.person, row.token, row.role, row.action, row.subject, row.before, row.after
        table.add_row(local_time(row.at_seconds), *(word or "-" for word in words))
    return table


def _state(token: AccessToken, now_seconds: float) -> str:
    if token.is_revoked(now_seconds):
        return "revoked"
    if token.has_expired(now_seconds):
        return "expired"
    return "valid" if token.revoked_seconds is None else "replaced, valid for a while"


def _table(*headings: str) -> Table:
    return words_table(*headings, wraps=("subject", "before", "after"))


def _time(seconds: float | None) -> str:
    return "never" if seconds is None else local_time(seconds)
