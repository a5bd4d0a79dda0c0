"""Splitting of snapshots into pieces, so that unchanged pieces are stored once.

Offers and samples of the throughput models are most of a snapshot. They change seldom, while a
plan is made every few seconds.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from pydantic import TypeAdapter

from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot, ThroughputModel
from autoscaler.store.records.documents import decode, encode

Pieces = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class MarketState:
    """Offers and limits of a snapshot, which all jobs share."""

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """A plan without its decisions, and its snapshot without the pieces.

    `market` and `models` are keys of pieces; `models` has one key for each job of the snapshot, in
    the same order.
    """

    snapshot: Snapshot
    plan: Plan
    market: str
    models: tuple[str, ...]


_DOCUMENT = TypeAdapter(PlanDocument)
_MARKET = TypeAdapter(MarketState)
_MODELS: TypeAdapter[Mapping[str, ThroughputModel]] = TypeAdapter(dict[str, ThroughputModel])


def cut(snapshot: Snapshot, plan: Plan) -> tuple[bytes, Pieces]:
    """Return the compressed document of a plan, and its compressed pieces by SHA-256."""
    pieces: dict[str, bytes] = {}

    def add_piece(value: object) -> str:
        content = encode(value)
        key = sha256(content).hexdigest()
        pieces[key] = zlib.compress(content)
        return key

    without_pieces = replace(
        snapshot,
        offers=(),
        limits=(),
        jobs=tuple(replace(job, models={}) for job in snapshot.jobs),
    )
    document = PlanDocument(
        snapshot=without_pieces,
        plan=replace(plan, decisions=()),
        market=add_piece(MarketState(snapshot.offers, snapshot.limits)),
        models=tuple(add_piece(job.models) for job in snapshot.jobs),
    )
    return zlib.compress(encode(document)), pieces


def read_document(document: bytes) -> PlanDocument:
    """Decode the document of a plan that `cut` returned."""
    return decode(_DOCUMENT, zlib.decompress(document))


def join(document: PlanDocument, pieces: Pieces) -> Snapshot:
    """Return the snapshot of a document; `pieces` hold at least those that the document names."""
    market = decode(_MARKET, zlib.decompress(pieces[document.market]))
    jobs = tuple(
        replace(job, models=decode(_MODELS, zlib.decompress(pieces[key])))
        for job, key in zip(document.snapshot.jobs, document.models, strict=True)
    )
    return replace(document.snapshot, offers=market.offers, limits=market.limits, jobs=jobs)
