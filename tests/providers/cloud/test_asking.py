"""Several places are asked at the same time."""

from __future__ import annotations

import threading

import pytest

from providers.cloud.asking import map_concurrently


def test_all_are_asked_before_any_has_to_answer() -> None:
    together = threading.Barrier(3, timeout=60.0)

    def ask(place: str) -> str:
        together.wait()
        return place.upper()

    assert map_concurrently(ask, ["a", "b", "c"]) == ["A", "B", "C"]


def test_one_alone_is_asked_right_here() -> None:
    assert map_concurrently(lambda _: threading.get_ident(), ["a"]) == [threading.get_ident()]
    assert map_concurrently(str, []) == []


def test_what_one_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        map_concurrently(lambda place: 1 // place, [1, 0, 2])
