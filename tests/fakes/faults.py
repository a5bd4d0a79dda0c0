"""Faults that a fake cloud is told to commit, whichever cloud it is."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class When(StrEnum):
    """Where in a call the fault is."""

    REFUSED = "refused"  # answered with an error, and not carried out
    IN_REPLY = "in reply"  # answered with success, and the error is told in what comes of it
    LOST_BEFORE = "lost before"  # never reaches the cloud; the connection breaks
    LOST_AFTER = "lost after"  # carried out; the connection breaks before the reply
    MALFORMED = "malformed"  # carried out; the reply is cut short
    EMPTY = "empty"  # carried out; the reply holds nothing of what it should


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` calls of `action` whose parameters hold `matching`.

    `times` None is until the faults are cleared. `delay_seconds` of real time pass first.
    """

    action: str
    when: When = When.REFUSED
    code: str = "InternalError"
    status: int = 500
    times: int | None = 1
    matching: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0


class Faults:
    """The faults that are still to be committed. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._waiting.extend(faults)

    def clear(self) -> None:
        with self._lock:
            self._waiting.clear()

    def next(self, action: str, parameters: Mapping[str, str]) -> Fault | None:
        """The fault of this call, used up by it."""
        with self._lock:
            for fault in self._waiting:
                if fault.action != action or not fault.matching.items() <= parameters.items():
                    continue
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times == 0:
                        self._waiting.remove(fault)
                return fault
            return None
