"""A job's timeline: all that it held and when, from which others find its end and its bill."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.offer import Offer
from autoscaler.domain.spending import LedgerEntry
from autoscaler.ledger.ledger import Ledger
from autoscaler.simulator.job_training import Span


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A stretch of one job's training, or of instances that are billed and not at work.

    `placement` (offer id -> devices at work on each instance) is all that it held; `offer` names
    the offers together, with a + between. `batch_size` is 0 while training was held up, and
    `gpus` 0 of instances that boot, or wait to go, beside those at work or by themselves.
    """

    from_s: float
    to_s: float
    offer: str
    instances: int
    gpus: int
    batch_size: int
    accumulation: int
    placement: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Stay:
    """An instance while one job paid for it, until it was closed or its least time was over."""

    instance: str
    offer: str
    from_seconds: float
    to_seconds: float
    billed_to_seconds: float


def stays_of(entries: Iterable[LedgerEntry]) -> Mapping[str, tuple[Stay, ...]]:
    """The stays of each job, from the whole ledger. All of it must be closed."""
    found: dict[str, list[Stay]] = defaultdict(list)
    for bill in Ledger(entries).bills:
        launch = bill.stretches[0].opening
        least_seconds = launch.at_seconds + launch.minimum_billed_seconds
        for stretch in bill.stretches:
            opened, closed = stretch.opening, stretch.closing
            assert closed is not None, f"{opened.instance} is held still"
            end = closed.at_seconds
            billed = max(end, least_seconds) if stretch is bill.stretches[-1] else end
            stay = Stay(opened.instance, opened.offer, opened.at_seconds, end, billed)
            found[opened.job].append(stay)
    return {job: tuple(own) for job, own in found.items()}


def timeline_of(
    spans: Sequence[Span], stays: Iterable[Stay], offers: Mapping[str, Offer]
) -> tuple[TimelineEntry, ...]:
    """The entries in the order of their ends.

    `stays` are of all instances that the job ever had. Each is billed from its launch, or since
    it came from another job, to its end or until it went to one, and for the least time that its
    offer bills: where it is in no span, it has an entry of its own, with those that idle just as
    long. Machines that jobs share are billed to nobody.
    """
    idle = Counter(
        (from_seconds, to_seconds, each.offer)
        for each in stays
        if not offers[each.offer].shared
        for from_seconds, to_seconds in _idle(each, spans)
    )
    entries = [_at_work(span) for span in spans]
    entries.extend(
        TimelineEntry(from_seconds, to_seconds, offer, count, 0, 0, 0, {offer: (0,) * count})
        for (from_seconds, to_seconds, offer), count in idle.items()
    )
    return tuple(sorted(entries, key=lambda entry: (entry.to_s, entry.from_s, entry.offer)))


def _at_work(span: Span) -> TimelineEntry:
    batch = span.batch
    placement: dict[str, tuple[int, ...]] = {}
    for member in sorted(span.members, key=lambda member: member.offer):
        placement[member.offer] = (*placement.get(member.offer, ()), member.devices)
    return TimelineEntry(
        from_s=span.from_seconds,
        to_s=span.to_seconds,
        offer="+".join(placement),
        instances=len(span.members),
        gpus=span.devices,
        batch_size=batch.total if batch else 0,
        accumulation=batch.accumulation if batch else 0,
        placement=placement,
    )


def _idle(stay: Stay, spans: Sequence[Span]) -> Iterator[tuple[float, float]]:
    """When it was billed and not a member, from and to."""
    at_seconds = stay.from_seconds
    for span in spans:
        if span.from_seconds >= stay.to_seconds or span.to_seconds <= stay.from_seconds:
            continue
        if any(member.instance == stay.instance for member in span.members):
            if span.from_seconds > at_seconds:
                yield at_seconds, span.from_seconds
            at_seconds = max(at_seconds, span.to_seconds)
    if stay.billed_to_seconds > at_seconds:
        yield at_seconds, stay.billed_to_seconds
