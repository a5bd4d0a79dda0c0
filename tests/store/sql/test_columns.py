from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from sqlalchemy.dialects import sqlite

from autoscaler.domain.instance import LaunchRequest
from autoscaler.domain.snapshot import Snapshot, ThroughputModel
from autoscaler.store.records.documents import decode, encode
from autoscaler.store.records.snapshots import SnapshotCutter, join, read_document
from autoscaler.store.sql.columns import Money
from tests.conformance.store_examples import model, plan, snapshot


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_money_comes_back_with_the_same_digits(value: Decimal) -> None:
    money, dialect = Money(), sqlite.dialect()
    text = money.process_bind_param(value, dialect)
    back = money.process_result_value(text, dialect)
    assert back is not None
    assert back.as_tuple() == value.as_tuple()


@given(
    st.floats(allow_nan=False),
    st.frozensets(st.tuples(st.integers(1, 64), st.integers(1, 64))),
)
def test_a_model_comes_back_as_it_was(
    seconds: float, measured: frozenset[tuple[int, int]]
) -> None:
    whole = replace(model(seconds), measured=measured)
    assert decode(TypeAdapter(ThroughputModel), encode(whole)) == whole


@given(st.builds(LaunchRequest, tags=st.dictionaries(st.text(), st.text())))
def test_any_text_comes_back(request: LaunchRequest) -> None:
    assert decode(TypeAdapter(LaunchRequest), encode(request)) == request


@given(now=st.floats(allow_nan=False), alpha=st.floats(allow_nan=False))
def test_a_snapshot_is_put_together_again(now: float, alpha: float) -> None:
    whole = snapshot(now, alpha)
    cut = SnapshotCutter().cut(whole, plan())
    assert join(read_document(cut.document), cut.pieces) == whole


def test_what_did_not_change_is_kept_once() -> None:
    first = SnapshotCutter().cut(snapshot(1.0), plan())
    second = SnapshotCutter().cut(snapshot(2.0), plan())
    assert first.pieces == second.pieces
    assert isinstance(read_document(second.document).snapshot, Snapshot)
