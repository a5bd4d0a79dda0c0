"""What the trials of a study held and when, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from autoscaler.domain.spending import LedgerEntry
from autoscaler.domain.study_stay import StudyStay
from autoscaler.store.store import Store


def stays_of_study(store: Store, study: str) -> tuple[StudyStay, ...]:
    """The stays of all its trials, by their beginnings."""
    jobs = {record.stands.job for record in store.studies.trials(study)}
    bills: dict[str, list[LedgerEntry]] = defaultdict(list)
    for entry in store.ledger.entries():
        bills[entry.instance].append(entry)
    found = [
        stay
        for instance, lines in bills.items()
        if any(line.job in jobs for line in lines)
        for stay in _stays(lines, store.instances.get(instance).devices_used)
        if stay.job in jobs
    ]
    return tuple(sorted(found, key=lambda stay: (stay.from_seconds, stay.instance)))


def _stays(lines: Sequence[LedgerEntry], devices: int) -> Iterator[StudyStay]:
    """One bill's lines open and close in turn; the last may be open still."""
    in_order = sorted(lines, key=lambda line: line.at_seconds)
    for opened, closed in zip_longest(in_order[::2], in_order[1::2]):
        yield StudyStay(
            job=opened.job,
            instance=opened.instance,
            offer=opened.offer,
            devices=devices,
            usd_per_hour=opened.usd_per_hour,
            from_seconds=opened.at_seconds,
            to_seconds=None if closed is None else closed.at_seconds,
        )
