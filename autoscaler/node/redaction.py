"""Takes secret values out of what a job prints, before it is written anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

SHORTEST_SECRET = 4
"""Values with fewer characters are not redacted: they would be found in ordinary words."""

_MARK = b"***"


class Redactor:
    """Redacts a stream of bytes: the result is the same however the stream is cut into chunks.

    Of a value of several lines each line counts by itself too. What may be the beginning of a
    value is held back until more is fed. A value that is printed in another form, as base64 or
    with escapes, is not found.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._needles: list[bytes] = []
        self._pattern: re.Pattern[bytes] | None = None
        self._held = b""
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Redact these, too, from now on."""
        parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
        needles = {part.encode() for part in parts if len(part) >= SHORTEST_SECRET}
        self._needles = sorted(needles.union(self._needles), key=len, reverse=True)
        # The lookahead finds occurrences that overlap, too.
        pattern = b"|".join(re.escape(needle) for needle in self._needles)
        self._pattern = re.compile(b"(?=(" + pattern + b"))") if self._needles else None

    def feed(self, chunk: bytes) -> bytes:
        """What is certain after `chunk`."""
        text = self._held + chunk
        clean, self._held = self._redact(text, self._open_end(text))
        return clean

    def finish(self) -> bytes:
        """What was held back; nothing comes any more."""
        clean, self._held = self._redact(self._held, len(self._held))
        return clean

    def _redact(self, text: bytes, end: int) -> tuple[bytes, bytes]:
        """`text` up to `end` redacted, and the rest, which an occurrence across `end` begins."""
        clean, position = [], 0
        for start, stop in self._occurrences(text):
            if stop > end:
                end = min(start, end)
                break
            clean += [text[position:start], _MARK]
            position = stop
        return b"".join([*clean, text[position:end]]), text[end:]

    def _occurrences(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where secrets are, from left to right; those that overlap are one."""
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
        """Where the first part at the end of `text` begins that may go on as a secret."""
        ends = [len(text)]
        for needle in self._needles:
            start = max(len(text) - len(needle) + 1, 0)
            while (start := text.find(needle[:1], start)) >= 0:
                if needle.startswith(text[start:]):
                    ends.append(start)
                    break
                start += 1
        return min(ends)
