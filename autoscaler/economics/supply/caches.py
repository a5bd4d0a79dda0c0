"""Caches bounded by bytes, and arrays with one row per job."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
    """Cache of at most `most_bytes` in total that evicts the oldest values first.

    One thread at a time may use it.
    """

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


@dataclass(frozen=True, eq=False)
class CacheSection(Generic[Value]):
    """Section of a `PlanningCache` for one type of value, with its bound in bytes.

    The module that computes the values declares the section. The section holds no values.
    """

    most_bytes: int


class PlanningCache:
    """Intermediate results of plans, for one thread at a time.

    They are functions of their keys: a cache saves time and changes no decision.
    """

    def __init__(self) -> None:
        self._sections: dict[CacheSection[Any], ByteBoundedCache[Any]] = {}

    def of(self, section: CacheSection[Value]) -> ByteBoundedCache[Value]:
        """Return the cached values of a section."""
        cache = self._sections.get(section)
        if cache is None:
            cache = self._sections[section] = ByteBoundedCache(section.most_bytes)
        return cache


class PlanningCaches:
    """Owner of a policy's planning cache, for any number of threads.

    Each plan has a cache to itself: that of the last plan, or a new one while another plan has it.
    """

    def __init__(self) -> None:
        # Appending to a deque and taking from it are atomic.
        self._idle: deque[PlanningCache] = deque(maxlen=1)

    @contextmanager
    def lent(self) -> Iterator[PlanningCache]:
        """Lend a cache for one plan, and keep it for the next one unless the plan fails."""
        try:
            cache = self._idle.pop()
        except IndexError:
            cache = PlanningCache()
        yield cache
        self._idle.append(cache)


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
