"""Plans in a database outlive the release that wrote them."""

from __future__ import annotations

import json
import zlib
from typing import Any

from autoscaler.domain.plan import Plan
from autoscaler.store.records.snapshots import cut, join, read_document
from tests.economics.cases import job, snapshot

OF_OFFERS = ("network", "upload_usd_per_gb", "download_usd_per_gb")
OF_SWITCHING = ("checkpoint_bytes", "carry_seconds")


def test_a_snapshot_from_before_there_were_networks_is_read_as_of_one() -> None:
    moment = snapshot(job())
    document, pieces = cut(moment, Plan(()))
    old = _unpacked(document)
    for name in OF_SWITCHING:
        del old["snapshot"]["jobs"][0]["switching"][name]
    market = next(key for key, piece in pieces.items() if "offers" in _unpacked(piece))
    offers = _unpacked(pieces[market])
    for offer in offers["offers"]:
        for name in OF_OFFERS:
            del offer[name]
    kept = {**pieces, market: _packed(offers)}
    assert join(read_document(_packed(old)), kept) == moment


def _unpacked(content: bytes) -> Any:
    return json.loads(zlib.decompress(content))


def _packed(value: object) -> bytes:
    return zlib.compress(json.dumps(value).encode())
