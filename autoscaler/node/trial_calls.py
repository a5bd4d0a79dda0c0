"""What a trial's worker has told in one start of the script, kept where it outlives the agent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autoscaler.domain.errors import SpecError
from autoscaler.domain.trial import TrialCall
from autoscaler.wire.codec import decode, encode

_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class KeptCalls:
    """The calls of one start, by number, in a file that a new start begins anew.

    What is kept survives the agent and the worker, not the instance.
    """

    def __init__(self, path: Path, started_seconds: float) -> None:
        """Take up what an agent of the same start has left.

        Raises:
            OSError: the file can't be read or written.
        """
        self._calls: list[TrialCall] = []
        head, *lines = (path.read_bytes() if path.exists() else b"").splitlines() or [b""]
        with suppress(SpecError):  # of an earlier start, or cut off where its agent was killed
            if decode(float, head) == started_seconds:
                self._calls = _sound(lines)
        self._file = os.fdopen(os.open(path, _ANEW, 0o600), "wb")
        for line in (encode(float, started_seconds), *(_line(call) for call in self._calls)):
            self._file.write(line + b"\n")
        self._file.flush()

    def keep(self, call: TrialCall) -> bool:
        """Keep the next call; False if it is kept already.

        Raises:
            OSError: it can't be written.
        """
        if self._calls and call.number <= self._calls[-1].number:
            return False
        self._file.write(_line(call) + b"\n")
        self._file.flush()
        self._calls.append(call)
        return True

    def after(self, number: int) -> Sequence[TrialCall]:
        """The calls beyond that number."""
        return tuple(call for call in self._calls if call.number > number)

    @property
    def last_number(self) -> int:
        """The number of the last call; 0 if there is none."""
        return self._calls[-1].number if self._calls else 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _sound(lines: Sequence[bytes]) -> list[TrialCall]:
    calls: list[TrialCall] = []
    for line in lines:
        with suppress(SpecError):
            calls.append(decode(TrialCall, line))
    return calls


def _line(call: TrialCall) -> bytes:
    return encode(TrialCall, call)
