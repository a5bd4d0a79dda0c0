"""What was computed before, kept while there is room for it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")
# An array that is too short is made longer by this share more than is needed.
_TO_SPARE = 0.125


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


class Rows:
    """A row for each of some names, of as few as were ever needed at once."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._free: list[int] = []

    def of(self, names: Sequence[str]) -> NDArray[np.int64]:
        """The row of each, (n,); those of others are free from now on."""
        self._free += [self._rows.pop(name) for name in sorted(self._rows.keys() - set(names))]
        for name in names:
            if name not in self._rows:
                self._rows[name] = self._free.pop() if self._free else len(self._rows)
        return np.array([self._rows[name] for name in names], dtype=np.int64)


def with_rows(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """The array, or a longer one: with at least so many rows, of which new ones are not set."""
    if len(array) >= rows:
        return array
    longer = np.empty((rows + int(_TO_SPARE * rows), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
