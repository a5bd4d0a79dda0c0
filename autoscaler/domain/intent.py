"""Calls to a cloud that were decided, written down before they are made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class IntentKind(StrEnum):
    """Which call."""

    LAUNCH = "launch"
    TERMINATE = "terminate"


class IntentState(StrEnum):
    """How the call went. A pending one is made again after a restart, with the same token."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Intent:
    """One call for one instance; `not_before_seconds` is its back-off."""

    id: int
    kind: IntentKind
    instance: str
    token: str
    state: IntentState
    attempts: int
    not_before_seconds: float
    error: str | None = None
