from __future__ import annotations

from autoscaler.policies.published.greedy import most_gain_first


def test_each_has_one_and_the_rest_goes_where_it_gains_most() -> None:
    values = {"a": [1.0, 4.0, 4.5], "b": [1.0, 3.0, 5.0], "unknown": ()}
    assert most_gain_first(values, 6) == {"a": 2, "b": 3, "unknown": 1}
    assert most_gain_first(values, 2) == {"a": 1, "b": 1, "unknown": 0}


def test_what_gains_nothing_is_left() -> None:
    assert most_gain_first({"a": [2.0, 1.0, 9.0]}, 8) == {"a": 1}
