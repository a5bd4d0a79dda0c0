"""Calls of a trial's worker in one start of the script, in a file that outlives the agent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.trial import TrialCall
from autoscaler.wire.codec import decode, encode

_OVERWRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class KeptCalls:
    """Calls of one start by number, in a file that a new start overwrites.

    The calls survive the agent and the worker, but not the instance.
    """

    def __init__(self, path: Path, started_seconds: float) -> None:
        """Load the calls that an earlier agent stored for the same start.

        Raises:
            OSError: the file can't be read or written.
        """
        self._calls: list[TrialCall] = []
        head, *lines = (path.read_bytes() if path.exists() else b"").splitlines() or [b""]
        with suppress(SpecError):  # from an earlier start, or cut off when the agent was killed
            if decode(float, head) == started_seconds:
                self._calls = _valid_calls(lines)
        self._file = os.fdopen(os.open(path, _OVERWRITE_FLAGS, 0o600), "wb")
        for line in (
            encode(float, started_seconds),
            *(_encoded_line(call) for call in self._calls),
        ):
            self._file.write(line + b"\n")
        self._file.flush()

    def keep(self, call: TrialCall) -> bool:
        """Store the next call; return False if it is stored already.

        Raises:
            OSError: the call can't be written.
        """
        if self._calls and call.number <= self._calls[-1].number:
            return False
        self._file.write(_encoded_line(call) + b"\n")
        self._file.flush()
        self._calls.append(call)
        return True

    def after(self, number: int) -> Sequence[TrialCall]:
        """Return the calls with numbers above `number`."""
        return tuple(call for call in self._calls if call.number > number)

    @property
    def last_number(self) -> int:
        """Number of the last call; 0 if there is none."""
        return self._calls[-1].number if self._calls else 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _valid_calls(lines: Sequence[bytes]) -> list[TrialCall]:
    calls: list[TrialCall] = []
    for line in lines:
        with suppress(SpecError):
            calls.append(decode(TrialCall, line))
    return calls


def _encoded_line(call: TrialCall) -> bytes:
    return encode(TrialCall, call)
