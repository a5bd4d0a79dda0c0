"""What was computed before, kept while there is room for it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Same:
    """A key that is equal for one and the same object alone: cheap where that is large."""

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


class Kept(Generic[Value]):
    """Values by key, of `most_bytes` together; what was put in first goes first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._values: dict[Hashable, tuple[Value, int]] = {}

    def get(self, key: Hashable) -> Value | None:
        """What is kept under that key."""
        found = self._values.get(key)
        return None if found is None else found[0]

    def put(self, key: Hashable, value: Value, size_bytes: int) -> None:
        """Keep it, and give up the oldest for it."""
        self._bytes += size_bytes - self._values.pop(key, (None, 0))[1]
        self._values[key] = value, size_bytes
        while self._bytes > self._most_bytes and self._values:
            oldest = next(iter(self._values))
            self._bytes -= self._values.pop(oldest, (None, 0))[1]
