"""Intents: cloud API calls that are recorded before they are made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LONGEST_WAIT_SECONDS: Final = 300.0
"""Longest back-off of a call. A pending call with a later time is due: the clock was set back."""


class IntentKind(StrEnum):
    """Kind of the API call."""

    LAUNCH = "launch"
    TERMINATE = "terminate"


class IntentState(StrEnum):
    """State of the call. A pending call is repeated after a restart, with the same token."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Intent:
    """One API call for one instance.

    Attributes:
        attempts: number of failed calls so far.
        not_before_seconds: earliest time of the next call, by back-off.
        sent_seconds: time of the last launch call whose outcome is unknown. None while no instance
            can result from this intent: nothing was sent, or the cloud refused every call.
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
