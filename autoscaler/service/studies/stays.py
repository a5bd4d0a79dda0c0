"""Allocations of a study's trials over time, from the ledger."""

from __future__ import annotations

from autoscaler.domain.study_stay import StudyStay
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store


def stays_of_study(store: Store, study: str) -> tuple[StudyStay, ...]:
    """Return the periods in which trials of the study held instances, by start time."""
    jobs = {record.stands.job for record in store.studies.trials(study)}
    stays = [
        StudyStay(
            job=stretch.opening.job,
            instance=stretch.opening.instance,
            offer=stretch.opening.offer,
            devices=store.instances.get(stretch.opening.instance).devices_used,
            usd_per_hour=stretch.opening.usd_per_hour,
            from_seconds=stretch.opening.at_seconds,
            to_seconds=None if stretch.closing is None else stretch.closing.at_seconds,
        )
        for bill in Ledger(store.ledger.entries()).bills
        for stretch in bill.stretches
        if stretch.opening.job in jobs
    ]
    return tuple(sorted(stays, key=lambda stay: (stay.from_seconds, stay.instance)))
