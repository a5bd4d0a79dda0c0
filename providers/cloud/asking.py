"""Asking several places at the same time: one that is slow to answer holds up no other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Place = TypeVar("Place")
Told = TypeVar("Told")

_MOST_AT_ONCE: Final = 8


def asked_at_once(ask: Callable[[Place], Told], places: Collection[Place]) -> list[Told]:
    """What each place answers, in their order. What one raises is raised here."""
    if len(places) <= 1:
        return [ask(place) for place in places]
    with ThreadPoolExecutor(min(len(places), _MOST_AT_ONCE)) as pool:
        return list(pool.map(ask, places))
