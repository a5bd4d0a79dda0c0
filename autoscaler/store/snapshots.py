"""Snapshots cut into pieces, so that what did not change since the last tick is kept once.

Nearly all of a snapshot are the draws of the throughput models and the offers, which change
seldom, while a plan is made every few seconds.
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
from autoscaler.store.columns import decode, encode

Pieces = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Market:
    """The part of a snapshot that all jobs share and that seldom changes."""

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """A plan without its decisions and the rest of its snapshot; `market` and `models` are keys.

    `models` has one key for each job of the snapshot, in their order.
    """

    snapshot: Snapshot
    plan: Plan
    market: str
    models: tuple[str, ...]


_DOCUMENT = TypeAdapter(PlanDocument)
_MARKET = TypeAdapter(Market)
_MODELS: TypeAdapter[Mapping[str, ThroughputModel]] = TypeAdapter(dict[str, ThroughputModel])


def cut(snapshot: Snapshot, plan: Plan) -> tuple[bytes, Pieces]:
    """The compressed document of a plan, and the compressed pieces that it names by SHA-256."""
    pieces: dict[str, bytes] = {}

    def piece(value: object) -> str:
        content = encode(value)
        key = sha256(content).hexdigest()
        pieces[key] = zlib.compress(content)
        return key

    rest = replace(
        snapshot,
        offers=(),
        limits=(),
        jobs=tuple(replace(job, models={}) for job in snapshot.jobs),
    )
    document = PlanDocument(
        snapshot=rest,
        plan=replace(plan, decisions=()),
        market=piece(Market(snapshot.offers, snapshot.limits)),
        models=tuple(piece(job.models) for job in snapshot.jobs),
    )
    return zlib.compress(encode(document)), pieces


def read_document(document: bytes) -> PlanDocument:
    """What `cut` made of a plan."""
    return decode(_DOCUMENT, zlib.decompress(document))


def join(document: PlanDocument, pieces: Pieces) -> Snapshot:
    """The snapshot again, equal to the one that was cut; `pieces` hold at least its own."""
    market = decode(_MARKET, zlib.decompress(pieces[document.market]))
    jobs = tuple(
        replace(job, models=decode(_MODELS, zlib.decompress(pieces[key])))
        for job, key in zip(document.snapshot.jobs, document.models, strict=True)
    )
    return replace(document.snapshot, offers=market.offers, limits=market.limits, jobs=jobs)
