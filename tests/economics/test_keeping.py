from __future__ import annotations

from autoscaler.economics.keeping import Kept, Same


def test_a_key_is_the_object_itself_and_no_equal_one() -> None:
    first, second = [1], [1]
    assert Same(first) == Same(first)
    assert Same(first) != Same(second)
    assert len({Same(first), Same(first), Same(second)}) == 2


def test_what_was_put_in_first_goes_first() -> None:
    kept: Kept[str] = Kept(10)
    for key in range(3):
        kept.put(key, f"value {key}", 4)
    assert [kept.get(key) for key in range(3)] == [None, "value 1", "value 2"]


def test_what_is_put_in_anew_counts_once() -> None:
    kept: Kept[str] = Kept(10)
    kept.put("other", "stays", 4)
    for _ in range(5):
        kept.put("key", "value", 4)
    assert kept.get("other") == "stays"


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    kept: Kept[str] = Kept(10)
    kept.put("key", "value", 11)
    assert kept.get("key") is None
