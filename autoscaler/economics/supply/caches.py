"""Caches bounded by bytes, and arrays with one row per job."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")
# Share of spare rows when an array grows.
_SPARE_SHARE = 0.125


class IdentityKey:
    """Cache key that compares by identity, which is cheap for large objects."""

    __slots__ = ("of",)

    def __init__(self, of: object) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


class ByteBoundedCache(Generic[Value]):
    """Cache of at most `most_bytes` in total that evicts the oldest values first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._values: dict[Hashable, tuple[Value, int]] = {}

    def get(self, key: Hashable) -> Value | None:
        """Return the value under a key; None if there is none."""
        entry = self._values.get(key)
        return None if entry is None else entry[0]

    def put(self, key: Hashable, value: Value, size_bytes: int) -> None:
        """Store a value of `size_bytes`, and evict the oldest values beyond the bound."""
        self._bytes += size_bytes - self._values.pop(key, (None, 0))[1]
        self._values[key] = value, size_bytes
        while self._bytes > self._most_bytes and self._values:
            oldest = next(iter(self._values))
            self._bytes -= self._values.pop(oldest, (None, 0))[1]


class RowAllocator:
    """Assignment of names to array rows that reuses the rows of dropped names."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._free: list[int] = []

    def of(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each name, (n,), and free the rows of all other names."""
        self._free += [self._rows.pop(name) for name in sorted(self._rows.keys() - set(names))]
        for name in names:
            if name not in self._rows:
                self._rows[name] = self._free.pop() if self._free else len(self._rows)
        return np.array([self._rows[name] for name in names], dtype=np.int64)


def with_rows(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return the array, or a longer copy with at least `rows` rows; new rows are not set."""
    if len(array) >= rows:
        return array
    longer = np.empty((rows + int(_SPARE_SHARE * rows), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
