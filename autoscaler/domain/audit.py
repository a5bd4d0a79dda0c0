"""Rows of the audit log: changes by people, and launches by the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_LETTERS: Final = 500


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change: who made it, with which token and role, to what, and its values.

    `before` and `after` are short texts, empty for none. `number` orders the rows; 0 for an entry
    that is not stored yet.
    """

    at_seconds: float
    person: str
    token: str
    role: str
    action: str
    subject: str
    before: str = ""
    after: str = ""
    number: int = 0


def shortened(text: str) -> str:
    """Return a text of at most `MOST_LETTERS` letters."""
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."
