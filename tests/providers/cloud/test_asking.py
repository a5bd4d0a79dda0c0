"""Several places are asked at the same time."""

from __future__ import annotations

import threading

import pytest

from providers.cloud.asking import asked_at_once


def test_all_are_asked_before_any_has_to_answer() -> None:
    together = threading.Barrier(3, timeout=10.0)

    def ask(place: str) -> str:
        together.wait()
        return place.upper()

    assert asked_at_once(ask, ["a", "b", "c"]) == ["A", "B", "C"]


def test_one_alone_is_asked_right_here() -> None:
    assert asked_at_once(lambda _: threading.get_ident(), ["a"]) == [threading.get_ident()]
    assert asked_at_once(str, []) == []


def test_what_one_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        asked_at_once(lambda place: 1 // place, [1, 0, 2])
