"""Independent parts of one computation, on several processors where there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

# Of arrays NumPy lets other threads run meanwhile, of all else Python does not.
_MOST_THREADS = min(os.cpu_count() or 1, 4)


def each_of(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """What the work on each part gives, in their order; it may touch nothing of another's."""
    threads = min(_MOST_THREADS, len(parts))
    if threads < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


def parts_of(count: int, most: int) -> list[slice]:
    """So many rows in parts of at most `most`, about alike."""
    number = -(-count // most)
    ends = [count * part // number for part in range(number + 1)] if number else [0]
    return [slice(start, end) for start, end in pairwise(ends)]
