"""Redaction of secret values in a job's output, before the output is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

SHORTEST_SECRET = 4
"""Least number of characters of a redacted value. Shorter values occur in ordinary words."""

_MARK = b"***"


class Redactor:
    """Redactor of a stream of bytes. The result does not depend on the split into chunks.

    Each line of a value of several lines is redacted too. Bytes that may begin a value are held
    back until more arrive. Encoded values, as base64 or with escapes, are not found.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._needles: list[bytes] = []
        self._pattern: re.Pattern[bytes] | None = None
        self._held = b""
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Redact these secrets too from now on."""
        parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
        needles = {part.encode() for part in parts if len(part) >= SHORTEST_SECRET}
        self._needles = sorted(needles.union(self._needles), key=len, reverse=True)
        # The lookahead also finds overlapping occurrences.
        pattern = b"|".join(re.escape(needle) for needle in self._needles)
        self._pattern = re.compile(b"(?=(" + pattern + b"))") if self._needles else None

    def feed(self, chunk: bytes) -> bytes:
        """Return the redacted bytes that are final after `chunk`."""
        text = self._held + chunk
        clean, self._held = self._redact(text, self._open_end(text))
        return clean

    def finish(self) -> bytes:
        """Return the redacted bytes that were held back, at the end of the stream."""
        clean, self._held = self._redact(self._held, len(self._held))
        return clean

    def _redact(self, text: bytes, end: int) -> tuple[bytes, bytes]:
        """Return `text` redacted up to `end`, and the rest.

        The rest begins earlier if an occurrence crosses `end`.
        """
        clean, position = [], 0
        for start, stop in self._occurrences(text):
            if stop > end:
                end = min(start, end)
                break
            clean += [text[position:start], _MARK]
            position = stop
        return b"".join([*clean, text[position:end]]), text[end:]

    def _occurrences(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield the (start, stop) of secrets from left to right; overlapping ones are merged."""
        if self._pattern is None:
            return
        start = stop = 0
        for match in self._pattern.finditer(text):
            if match.start(1) >= stop:
                if stop > start:
                    yield start, stop
                start = match.start(1)
            stop = max(stop, match.end(1))
        if stop > start:
            yield start, stop

    def _open_end(self, text: bytes) -> int:
        """Return the start of the longest suffix of `text` that may begin a secret."""
        ends = [len(text)]
        for needle in self._needles:
            start = max(len(text) - len(needle) + 1, 0)
            while (start := text.find(needle[:1], start)) >= 0:
                if needle.startswith(text[start:]):
                    ends.append(start)
                    break
                start += 1
        return min(ends)
