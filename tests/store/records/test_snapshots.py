"""Plans in a database outlive the release that wrote them."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.plan import Plan
from autoscaler.store.records.snapshots import SnapshotCutter, join, pieces_of, read_document
from tests.economics.cases import job, snapshot

OF_OFFERS = ("network", "upload_usd_per_gb", "download_usd_per_gb")
OF_SWITCHING = ("checkpoint_bytes", "carry_seconds")
JOB = job()


def test_a_snapshot_from_before_there_were_networks_is_read_as_of_one() -> None:
    moment = snapshot(job())
    cut = SnapshotCutter().cut(moment, Plan(()))
    old = _unpacked(cut.document)
    states = _unpacked(cut.pieces[old.pop("base")])
    del old["removed"]
    old["snapshot"]["jobs"], old["models"] = states["jobs"], states["models"]
    for name in OF_SWITCHING:
        del old["snapshot"]["jobs"][0]["switching"][name]
    offers = _unpacked(cut.pieces[old["market"]])
    for offer in offers["offers"]:
        for name in OF_OFFERS:
            del offer[name]
    kept = {**cut.pieces, old["market"]: _packed(offers)}
    assert join(read_document(_packed(old)), kept) == moment


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 7), st.sampled_from((0.1, 0.2))), min_size=1, max_size=8
    )
)
def test_each_of_successive_snapshots_is_put_together_again(
    moments: list[dict[int, float]],
) -> None:
    cutter, pieces = SnapshotCutter(), {}
    for number, spent_usd in enumerate(moments):
        jobs = (replace(JOB, id=f"job-{name}", spent_usd=usd) for name, usd in spent_usd.items())
        moment = replace(snapshot(*jobs), now_seconds=float(number))
        cut = cutter.cut(moment, Plan(()))
        assert cut.used <= {*pieces, *cut.pieces}
        pieces |= cut.pieces
        if number % 3 != 1:  # the transaction of others fails
            cutter.keep(cut)
        document = read_document(cut.document)
        assert document.base is not None
        assert pieces_of(document, pieces[document.base]) <= cut.used
        assert join(document, pieces) == moment


def test_only_changes_are_stored_while_few_jobs_change() -> None:
    jobs = [replace(JOB, id=f"job-{number}") for number in range(100)]
    cutter = SnapshotCutter()
    first = cutter.cut(snapshot(*jobs), Plan(()))
    cutter.keep(first)
    jobs[7] = replace(jobs[7], spent_usd=5.0)
    second = cutter.cut(snapshot(*jobs), Plan(()))
    document = read_document(second.document)
    assert [job.id for job in document.snapshot.jobs] == ["job-7"]
    assert document.base == first.base.key
    many = [replace(job, spent_usd=9.0) for job in jobs]
    assert cutter.cut(snapshot(*many), Plan(())).base.key != first.base.key


def _unpacked(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


def _packed(value: object) -> bytes:
    return zlib.compress(json.dumps(value).encode())
