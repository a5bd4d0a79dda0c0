from __future__ import annotations

import pytest

from autoscaler.economics import threads
from autoscaler.economics.threads import each_of, parts_of


@pytest.mark.parametrize("most", [1, 3])
def test_results_are_in_the_order_of_the_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_MOST_THREADS", most)
    assert each_of(lambda part: part * part, range(20)) == [n * n for n in range(20)]
    assert each_of(str, []) == []


def test_what_goes_wrong_in_a_part_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_MOST_THREADS", 2)
    with pytest.raises(ZeroDivisionError):
        each_of(lambda part: 1 / part, [1, 0])


@pytest.mark.parametrize(("count", "most"), [(0, 4), (1, 4), (4, 4), (5, 4), (1000, 128)])
def test_parts_cover_all_rows_once(count: int, most: int) -> None:
    parts = parts_of(count, most)
    rows = [row for part in parts for row in range(count)[part]]
    assert rows == list(range(count))
    assert all(0 < part.stop - part.start <= most for part in parts)
