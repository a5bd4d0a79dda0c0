from __future__ import annotations

from autoscaler.economics.pricing.price import upper_hull


def test_what_lies_beneath_the_line_between_two_others_is_no_corner() -> None:
    points = [(1.0, 1.0, 0), (2.0, 5.0, 1), (3.0, 5.5, 2), (4.0, 7.0, 3)]
    assert [which for _, _, which in upper_hull(points)] == [-1, 1, 3]


def test_it_begins_with_what_is_had_for_no_use() -> None:
    assert upper_hull([(0.0, 2.0, 7), (1.0, 3.0, 8)])[0] == (0.0, 2.0, 7)


def test_what_is_worth_no_more_than_less_use_is_no_corner() -> None:
    assert upper_hull([(1.0, -1.0, 0), (2.0, 0.0, 1)]) == [(0.0, 0.0, -1)]
