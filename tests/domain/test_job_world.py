"""Texts in which stores hold the world of a restartable job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoscaler.domain.job_world import (
    GenerationTime,
    JobWorld,
    MemberReport,
    WorldOpening,
    WorldSave,
    parse_generation_time,
    parse_member_report,
    parse_opening,
    parse_save,
    parse_world,
)

PARSERS: dict[type, Callable[[str], object]] = {
    JobWorld: parse_world,
    GenerationTime: parse_generation_time,
    WorldSave: parse_save,
    WorldOpening: parse_opening,
    MemberReport: parse_member_report,
}


@pytest.mark.parametrize(
    "value",
    [
        JobWorld(3, 1, 1000.25, ("a-1-1", "a-2-1")),
        JobWorld(1, 2, 0.5, ()),
        GenerationTime(2, 1e9 + 0.125),
        WorldSave(2, 7.5, "ckpt/step 1@12"),
        WorldOpening(4, "10.0.0.1:2222"),
        MemberReport(0, False, None, 1.0),
        MemberReport(5, True, "[::1]:80", 2.0),
    ],
)
def test_values_are_read_as_they_were_stored(value: object) -> None:
    assert PARSERS[type(value)](str(value)) == value


@pytest.mark.parametrize("parse", PARSERS.values())
@pytest.mark.parametrize("text", ["", "1", "a b c d", "x 1.0 a", "1 nan 1 nan"])
def test_malformed_texts_are_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
