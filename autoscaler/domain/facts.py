"""Facts of an instance, stored as text by key, and their typed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum, unique
from typing import Generic, Protocol, TypeVar

Value = TypeVar("Value")


@unique
class Fact(StrEnum):
    """Key of a fact, as stores hold it. Times are in seconds since the epoch."""

    NETWORK = "network"
    PREPARED = "ready"
    ADMITTED = "let in"
    HANDED_OVER = "handed over"
    START = "start seconds"
    STANDBY = "stands by until"
    RECALLED = "called back"
    UNDECIDED = "undecided"
    SESSION = "session"
    UNOPENED = "without session since"
    WITHOUT_SESSION = "known without session"
    FIRST_START = "first start"
    GIVEN_UP = "given up"
    JOIN = "join seconds"
    ASKED = "offers asked"
    COMPLETE = "complete"
    DONE = "done"
    SCRIPT_END = "script end"
    STOP_REASON = "stop reason"
    ENDING = "ending"
    TRIAL_END = "trial end"
    TRIAL_CAUSE = "trial cause"
    GANG = "gang"
    GANG_START = "gang start"
    RENDEZVOUS = "rendezvous"
    WORLD = "world"
    WORLD_OPENING = "world opening"
    WORLD_REPORT = "world report"
    WORLD_BEGUN = "world begun"
    WORLD_SAVE = "world save"
    WORLD_READY = "ready for a world"
    LEAVES_WORLD = "leaves its world"
    ACTIVITY = "activity"


class HasFacts(Protocol):
    """Object with stored facts."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Texts by key; a fact with an empty text is over."""
        ...


class FactValue(Generic[Value]):
    """Attribute with the typed value of one fact; None without the fact or if it is over.

    A malformed text is read as `if_malformed`, which must be a value that keeps no instance.
    """

    def __init__(
        self, key: Fact, parse: Callable[[str], Value], if_malformed: Value | None = None
    ) -> None:
        self._key = key
        self._parse = parse
        self._if_malformed = if_malformed

    def __get__(self, owner: HasFacts | None, owner_type: type) -> Value | None:
        text = "" if owner is None else owner.facts.get(self._key)
        if not text:
            return None
        try:
            return self._parse(text)
        except ValueError:
            return self._if_malformed


def seconds_of(text: str) -> float:
    """Return a time or duration in seconds.

    Raises:
        ValueError: the text is not a finite number.
    """
    seconds = float(text)
    if not math.isfinite(seconds):
        raise ValueError(f"not a finite number: {text}")
    return seconds
