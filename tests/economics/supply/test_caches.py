from __future__ import annotations

import numpy as np
import pytest

from autoscaler.economics.supply.caches import (
    ByteBoundedCache,
    CacheSection,
    IdentityKey,
    PlanningCaches,
    RowAllocator,
    with_rows,
)

SECTION: CacheSection[str] = CacheSection(10)


def test_a_key_is_the_object_itself_and_no_equal_one() -> None:
    first, second = [1], [1]
    assert IdentityKey(first) == IdentityKey(first)
    assert IdentityKey(first) != IdentityKey(second)
    assert len({IdentityKey(first), IdentityKey(first), IdentityKey(second)}) == 2


def test_what_was_put_in_first_goes_first() -> None:
    kept: ByteBoundedCache[str] = ByteBoundedCache(10)
    for key in range(3):
        kept.put(key, f"value {key}", 4)
    assert [kept.get(key) for key in range(3)] == [None, "value 1", "value 2"]


def test_what_is_put_in_anew_counts_once() -> None:
    kept: ByteBoundedCache[str] = ByteBoundedCache(10)
    kept.put("other", "stays", 4)
    for _ in range(5):
        kept.put("key", "value", 4)
    assert kept.get("other") == "stays"


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    kept: ByteBoundedCache[str] = ByteBoundedCache(10)
    kept.put("key", "value", 11)
    assert kept.get("key") is None


def test_rows_are_of_as_few_names_as_there_were_at_once() -> None:
    rows = RowAllocator()
    assert rows.of(["a", "b", "c"]).tolist() == [0, 1, 2]
    assert rows.of(["c", "d"]).tolist()[0] == 2
    assert sorted(rows.of(["c", "d", "e"]).tolist()) == [0, 1, 2]
    assert rows.of(["c", "d", "e", "f"]).max() == 3


def test_an_array_is_made_longer_with_what_was_in_it() -> None:
    array = np.arange(6).reshape(3, 2)
    longer = with_rows(array, 8)
    assert len(longer) >= 8
    assert (longer[:3] == array).all()
    assert with_rows(longer, 8) is longer


def test_plans_one_after_the_other_have_the_same_cache() -> None:
    caches = PlanningCaches()
    with caches.lent() as first:
        first.of(SECTION).put("key", "value", 1)
    with caches.lent() as second:
        assert second is first
        assert second.of(SECTION).get("key") == "value"
        assert second.of(CacheSection[str](10)).get("key") is None


def test_plans_at_the_same_time_have_caches_of_their_own() -> None:
    caches = PlanningCaches()
    with caches.lent() as first, caches.lent() as second:
        assert first is not second
        first.of(SECTION).put("key", "value", 1)
        assert second.of(SECTION).get("key") is None
    with caches.lent() as third, caches.lent() as fourth:
        assert third is first
        assert fourth is not second


def test_the_cache_of_a_plan_that_fails_is_dropped() -> None:
    caches = PlanningCaches()
    with pytest.raises(ZeroDivisionError), caches.lent() as first:
        raise ZeroDivisionError
    with caches.lent() as second:
        assert second is not first
