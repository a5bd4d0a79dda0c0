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
    """One call to a cloud for one instance.

    Attributes:
        attempts: failed calls so far.
        not_before_seconds: the earliest time of the next call, as the back-off sets it.
        sent_seconds: when the last launch call was made whose outcome is not known. None while
            no instance can have come of this intent: it was never sent, or the cloud has
            definitely refused every call.
    """

    id: int
    kind: IntentKind
    instance: str
    token: str
    state: IntentState
    attempts: int
    not_before_seconds: float
    error: str | None = None
    sent_seconds: float | None = None
