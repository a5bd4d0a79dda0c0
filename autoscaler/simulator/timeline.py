"""Timeline of a job: its allocations over time, from which its end and bill can be checked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.domain.offer import Offer
from autoscaler.domain.spending import LedgerEntry
from autoscaler.ledger.ledger import Ledger
from autoscaler.simulator.training.base import Span


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Stretch of one job's training, or of billed instances that are not at work.

    `placement` is offer id -> devices at work on each instance. `offer` joins the ids of all
    offers with a +. `batch_size` is 0 while training is paused. `gpus` is 0 for instances that
    boot or wait to end.
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
    """Period in which one job paid for an instance; billing may last for a minimum time."""

    instance: str
    offer: str
    from_seconds: float
    to_seconds: float
    billed_to_seconds: float


def stays_of(entries: Iterable[LedgerEntry]) -> Mapping[str, tuple[Stay, ...]]:
    """Return the stays of each job, from the whole ledger. All bills must be closed."""
    stays: dict[str, list[Stay]] = defaultdict(list)
    for bill in Ledger(entries).bills:
        launch = bill.stretches[0].opening
        least_seconds = launch.at_seconds + launch.minimum_billed_seconds
        for stretch in bill.stretches:
            opened, closed = stretch.opening, stretch.closing
            assert closed is not None, f"{opened.instance} is held still"
            end = closed.at_seconds
            billed = max(end, least_seconds) if stretch is bill.stretches[-1] else end
            stay = Stay(opened.instance, opened.offer, opened.at_seconds, end, billed)
            stays[opened.job].append(stay)
    return {job: tuple(job_stays) for job, job_stays in stays.items()}


def timeline_of(
    spans: Sequence[Span], stays: Iterable[Stay], offers: Mapping[str, Offer]
) -> tuple[TimelineEntry, ...]:
    """Return the entries of a job in the order of their ends.

    `stays` cover all instances that the job ever had. An instance is billed from its launch or
    hand-over to its end or next hand-over, for at least the offer's minimum time. Periods outside
    spans have entries of their own, one for all instances of an offer that idle equally long.
    Shared machines are not billed.
    """
    idle = Counter(
        (from_seconds, to_seconds, stay.offer)
        for stay in stays
        if not offers[stay.offer].shared
        for from_seconds, to_seconds in _idle(stay, spans)
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
    """Yield the periods in which an instance was billed and not at work: from, to."""
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
