"""Limits of examples per device, by kind of device."""

from __future__ import annotations

from autoscaler.domain.goodput import BatchBounds

BOUNDS = BatchBounds(64, 256, 32, adaptive=True, kind_maxima=(("a100", 128),))


def test_a_limit_holds_for_its_kind_alone_and_is_never_raised() -> None:
    limited = BOUNDS.limited("t4", 8).limited("t4", 16).limited("a100", 64)
    assert [limited.on(kind).device_maximum for kind in ("t4", "a100", "l4")] == [8, 64, 32]
    assert BOUNDS.limited("t4", 32) is BOUNDS


def test_kinds_that_take_fewer_than_others_are_told_in_words() -> None:
    assert BOUNDS.memory_messages == ()
    assert BOUNDS.limited("t4", 1).memory_messages == (
        "out of memory with more than 1 example at once on a device of kind t4: larger shares "
        "are split",
    )
