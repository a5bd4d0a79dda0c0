from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.trial import TrialCall
from autoscaler.wire.codec import encode, in_parts

calls = st.lists(st.builds(TrialCall, st.integers(1, 9), st.text(max_size=50)), max_size=20)


@given(calls, st.integers(1, 400))
def test_parts_have_all_items_in_order_and_none_is_too_large(
    items: list[TrialCall], part_bytes: int
) -> None:
    parts = list(in_parts(TrialCall, items, part_bytes))
    assert [item for part in parts for item in part] == items
    assert parts, "there is one, were it empty"
    for part in parts:
        size_bytes = sum(len(encode(TrialCall, item)) for item in part)
        assert size_bytes <= part_bytes or len(part) == 1
