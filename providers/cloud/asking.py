"""Concurrent calls to several places, so that one slow place delays no other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Place = TypeVar("Place")
Told = TypeVar("Told")

_MAX_THREADS: Final = 8


def map_concurrently(ask: Callable[[Place], Told], places: Collection[Place]) -> list[Told]:
    """Call `ask` for all places concurrently and return the answers in order.

    An exception of a call is raised here.
    """
    if len(places) <= 1:
        return [ask(place) for place in places]
    with ThreadPoolExecutor(min(len(places), _MAX_THREADS)) as pool:
        return list(pool.map(ask, places))
