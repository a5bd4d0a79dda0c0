"""Allocations of a study's trials over time, from the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.study_stay import StudyStay
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.store import Store


def stays_of_study(store: Store, study: str) -> tuple[StudyStay, ...]:
    """Return the periods in which trials of the study held instances, by start time."""
    jobs = {record.stands.job for record in store.studies.trials(study)}
    held = {instance.id: instance for instance in _instances_of(store, jobs)}
    stays = [
        StudyStay(
            job=stretch.opening.job,
            instance=stretch.opening.instance,
            offer=stretch.opening.offer,
            devices=_devices_used(store, held, stretch.opening.instance),
            usd_per_hour=stretch.opening.usd_per_hour,
            from_seconds=stretch.opening.at_seconds,
            to_seconds=None if stretch.closing is None else stretch.closing.at_seconds,
        )
        for bill in Ledger(store.ledger.of_jobs(jobs)).bills
        for stretch in bill.stretches
        if stretch.opening.job in jobs
    ]
    return tuple(sorted(stays, key=lambda stay: (stay.from_seconds, stay.instance)))


def _instances_of(store: Store, jobs: Collection[str]) -> Iterator[HeldInstance]:
    """Yield the instances that some jobs hold, or held last."""
    for of_job in store.instances.ended_of_jobs(jobs).values():
        yield from of_job
    yield from (held for held in store.instances.alive() if held.job in jobs)


def _devices_used(store: Store, known: Mapping[str, HeldInstance], instance: str) -> int:
    """Return the devices of an instance, which a job outside the study may hold now."""
    held = known.get(instance) or store.instances.get(instance)
    return held.devices_used
