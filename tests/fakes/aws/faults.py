"""Faults that the proxy is told to commit, and the texts that AWS says them with."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class When(StrEnum):
    """Where in a call the fault is."""

    REFUSED = "refused"  # answered with an error, and not carried out
    IN_REPLY = "in reply"  # a fleet's 200 that says the error among its `Errors`
    LOST_BEFORE = "lost before"  # never reaches AWS; the connection breaks
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


def error_body(service: str, code: str, message: str) -> bytes:
    """An error as the service words it."""
    if service == "ec2":
        return (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            "</Errors><RequestID>fault</RequestID></Response>"
        ).encode()
    if service == "sts":
        return (
            f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            "<RequestId>fault</RequestId></ErrorResponse>"
        ).encode()
    if service == "s3":
        return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return json.dumps({"__type": code, "message": message}).encode()
