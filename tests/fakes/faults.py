"""Faults that a test injects into the calls of a fake cloud."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class When(StrEnum):
    """Point of a call at which the fault occurs."""

    REFUSED = "refused"  # answered with an error, and not carried out
    IN_REPLY = "in reply"  # answered with success; the result contains the error
    LOST_BEFORE = "lost before"  # never reaches the cloud; the connection breaks
    LOST_AFTER = "lost after"  # carried out; the connection breaks before the reply
    MALFORMED = "malformed"  # carried out; the reply is cut short
    EMPTY = "empty"  # carried out; the reply is empty


@dataclass(slots=True)
class Fault:
    """Fault of the next `times` calls of `action` whose parameters include `matching`.

    A fault with `times` None lasts until the faults are cleared. `delay_seconds` of real time pass
    before each.
    """

    action: str
    when: When = When.REFUSED
    code: str = "InternalError"
    status: int = 500
    times: int | None = 1
    matching: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0


class Faults:
    """Faults that have not occurred yet. Thread-safe."""

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
        """Return the fault of this call and count it as used; None if the call succeeds."""
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
