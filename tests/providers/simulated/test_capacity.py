from __future__ import annotations

import json
import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.errors import SpecError
from providers.simulated.capacity import CapacityTrace, read_capacity_trace

GAPS = st.sampled_from([0.1, 1 / 3, 30.0, 195.0, 300.0])
COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)
MOMENTS = st.floats(-1e4, 2e9)


def test_a_trace_is_read_at_its_offset_and_wraps_round() -> None:
    trace = CapacityTrace(10.0, (1, 2, 3), offset_seconds=10.0)
    assert [trace.available(seconds) for seconds in (0, 9, 10, 20, 49.9, -10)] == [
        2,
        2,
        3,
        1,
        3,
        1,
    ]
    assert trace.shifted(10.0).available(0) == 3


def test_changes_are_told_with_their_moments() -> None:
    trace = CapacityTrace(10.0, (1, 1, 3, 0))
    assert list(trace.changes(0.0, 60.0)) == [(20.0, 3), (30.0, 0), (40.0, 1), (60.0, 3)]
    assert list(trace.changes(20.0, 30.0)) == [(30.0, 0)]


def test_a_trace_of_one_number_never_changes() -> None:
    assert list(CapacityTrace(10.0, (2, 2)).changes(0.0, 1e9)) == []


@given(GAPS, COUNTS, st.floats(-1e9, 1e9), MOMENTS)
def test_changes_and_numbers_agree(
    gap_seconds: float, counts: tuple[int, ...], offset_seconds: float, after_seconds: float
) -> None:
    trace = CapacityTrace(gap_seconds, counts, offset_seconds)
    until_seconds = after_seconds + 2 * trace.period_seconds
    now = [(after_seconds, trace.available(after_seconds))]
    changes = now + list(trace.changes(after_seconds, until_seconds))
    for (earlier, before), (later, after) in pairwise(changes):
        assert earlier < later
        assert before != after
        assert trace.available(later) == after
        assert trace.available(earlier) == before
        assert trace.available(math.nextafter(later, earlier)) == before


@pytest.mark.parametrize("gap_seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_gap_takes_time(gap_seconds: float) -> None:
    with pytest.raises(ValueError, match="gap_seconds"):
        CapacityTrace(gap_seconds, (1,))


@pytest.mark.parametrize("counts", [(), (1, -1)])
def test_counts_are_numbers_of_instances(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="counts"):
        CapacityTrace(1.0, counts)


def test_a_file_becomes_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 30, "zone": "a"}, "data": [0, 4]}))
    assert read_capacity_trace(path) == CapacityTrace(30.0, (0, 4))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"metadata": {"gap_seconds": 30}, "data": [0, 4', None),
        ('{"metadata": {"gap_seconds": 30}}', "data"),
        ('{"metadata": {}, "data": [1]}', "metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1]}', "metadata.gap_seconds"),
        ('{"metadata": {"gap_seconds": 30}, "data": []}', "data"),
        ('{"metadata": {"gap_seconds": 30}, "data": [1, -1]}', "data.1"),
        ('{"metadata": {"gap_seconds": 30}, "data": [1, 2.5]}', "data.1"),
        ('{"metadata": {"gap_seconds": 30}, "data": [true]}', "data.0"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_by_name(
    tmp_path: Path, text: str, field: str | None
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=r"broken\.json") as caught:
        read_capacity_trace(path)
    assert caught.value.field == field


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.json: No such file"):
        read_capacity_trace(tmp_path / "absent.json")


@pytest.fixture
def published() -> Path:
    data = os.environ.get("CASTOR_DATA")
    if data is None:
        pytest.skip("CASTOR_DATA is not set: it names the folder of the published traces")
    return Path(data) / "spot"


def test_published_traces_are_read(published: Path) -> None:
    trace = read_capacity_trace(published / "availability" / "us-east-2b_v100_1.json")
    assert (trace.gap_seconds, len(trace.counts), max(trace.counts)) == (300.0, 3247, 16)
    assert all(
        read_capacity_trace(path).period_seconds > 86400.0 for path in published.glob("*/*.json")
    )
