"""Splitting of snapshots into pieces, so that unchanged pieces are stored once.

Offers and samples of the throughput models are most of a snapshot. They change seldom, while a
plan is made every few seconds. The jobs are stored as they were at some plan, the base, and as
the changes since then.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from pydantic import TypeAdapter

from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, ThroughputModel
from autoscaler.store.records.documents import decode, encode

Pieces = Mapping[str, bytes]
# A base is replaced once more than this part of the jobs has changed.
_MOST_CHANGED: Final = 0.5


@dataclass(frozen=True, slots=True)
class MarketState:
    """Offers and limits of a snapshot, which all jobs share."""

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class JobStates:
    """Jobs of a snapshot without their models, and the keys of these, in the same order."""

    jobs: tuple[JobSnapshot, ...]
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """A plan without its decisions, and its snapshot without the pieces.

    `market`, `base` and `models` are keys of pieces. The snapshot has the jobs that are not as in
    `base`, the `JobStates` of an earlier snapshot, of which `removed` jobs have ended; None: it
    has all jobs. `models` has one key for each job of the snapshot, in the same order.
    """

    snapshot: Snapshot
    plan: Plan
    market: str
    models: tuple[str, ...]
    base: str | None = None
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobState:
    """A job of a snapshot, and the key of its models."""

    job: JobSnapshot
    models: str


@dataclass(frozen=True, slots=True)
class Base:
    """Jobs of an earlier snapshot by id, in its order, stored under `key`."""

    key: str
    states: Mapping[str, JobState]


@dataclass(frozen=True, slots=True)
class Cut:
    """A plan's compressed document, and its compressed pieces by SHA-256.

    `used` has the keys of all pieces that the document needs; `pieces` lacks some of those that
    were in earlier cuts. `base` and `states` describe this snapshot for later cuts.
    """

    document: bytes
    pieces: Pieces
    used: frozenset[str]
    base: Base
    states: Mapping[str, JobState]


_DOCUMENT = TypeAdapter(PlanDocument)
_MARKET = TypeAdapter(MarketState)
_STATES = TypeAdapter(JobStates)
_MODELS: TypeAdapter[Mapping[str, ThroughputModel]] = TypeAdapter(dict[str, ThroughputModel])


class SnapshotCutter:
    """Cutter of successive snapshots, which refers to earlier cuts once these are stored."""

    def __init__(self) -> None:
        self._base: Base | None = None
        self._states: Mapping[str, JobState] = {}

    def keep(self, cut: Cut) -> None:
        """Let later cuts refer to this one, whose pieces are stored."""
        self._base, self._states = cut.base, cut.states

    def cut(self, snapshot: Snapshot, plan: Plan) -> Cut:
        """Return the document and the pieces of a plan."""
        pieces: dict[str, bytes] = {}
        states = {job.id: self._state(job, pieces) for job in snapshot.jobs}
        base = self._base
        changed = () if base is None else _changed(base.states, states)
        if base is None or not _may_serve(base.states, states, changed):
            base, changed = Base(_add_piece(pieces, _stored(states.values())), states), ()
        changes = _stored(states[job] for job in changed)
        document = PlanDocument(
            snapshot=replace(snapshot, offers=(), limits=(), jobs=changes.jobs),
            plan=replace(plan, decisions=()),
            market=_add_piece(pieces, MarketState(snapshot.offers, snapshot.limits)),
            models=changes.models,
            base=base.key,
            removed=tuple(job for job in base.states if job not in states),
        )
        used = {document.market, base.key, *changes.models}
        used.update(state.models for state in base.states.values())
        content = zlib.compress(encode(document))
        return Cut(content, pieces, frozenset(used), base, states)

    def _state(self, job: JobSnapshot, pieces: dict[str, bytes]) -> JobState:
        """Return the state of a job; models that are no other object have their earlier key."""
        known = self._states.get(job.id)
        if known is not None and known.job.models is job.models:
            return JobState(job, known.models)
        return JobState(job, _add_piece(pieces, job.models))


def _add_piece(pieces: dict[str, bytes], value: object) -> str:
    """Add the compressed content of a value; return its key."""
    content = encode(value)
    key = sha256(content).hexdigest()
    if key not in pieces:
        pieces[key] = zlib.compress(content)
    return key


def _stored(states: Iterable[JobState]) -> JobStates:
    stored = tuple(states)
    return JobStates(
        tuple(replace(state.job, models={}) for state in stored),
        tuple(state.models for state in stored),
    )


def _changed(before: Mapping[str, JobState], states: Mapping[str, JobState]) -> tuple[str, ...]:
    """Return the jobs whose state is not as before, in the order of the snapshot."""
    return tuple(job for job, state in states.items() if before.get(job) != state)


def _may_serve(
    base: Mapping[str, JobState], states: Mapping[str, JobState], changed: Sequence[str]
) -> bool:
    """Return whether a snapshot is worth storing as changes of a base, in an order to restore."""
    left = [job for job in base if job in states]
    new = [job for job in changed if job not in base]
    return len(changed) <= _MOST_CHANGED * len(states) and [*left, *new] == list(states)


def read_document(document: bytes) -> PlanDocument:
    """Decode the document of a plan that `cut` returned."""
    return decode(_DOCUMENT, zlib.decompress(document))


def pieces_of(document: PlanDocument, base: bytes | None) -> frozenset[str]:
    """Return the keys of all pieces that `join` needs; `base` is the piece of that key."""
    states = _states(document, base)
    return frozenset({document.market, *(state.models for state in states.values())})


def join(document: PlanDocument, pieces: Pieces) -> Snapshot:
    """Return the snapshot of a document; `pieces` hold at least those that the document needs."""
    market = decode(_MARKET, zlib.decompress(pieces[document.market]))
    states = _states(document, None if document.base is None else pieces[document.base])
    jobs = tuple(
        replace(state.job, models=decode(_MODELS, zlib.decompress(pieces[state.models])))
        for state in states.values()
    )
    return replace(document.snapshot, offers=market.offers, limits=market.limits, jobs=jobs)


def _states(document: PlanDocument, base: bytes | None) -> Mapping[str, JobState]:
    """Return all jobs of a document's snapshot, in order."""
    jobs, models = document.snapshot.jobs, document.models
    if base is not None:
        earlier = decode(_STATES, zlib.decompress(base))
        jobs, models = (*earlier.jobs, *jobs), (*earlier.models, *models)
    states = {job.id: JobState(job, key) for job, key in zip(jobs, models, strict=True)}
    return {job: state for job, state in states.items() if job not in document.removed}
