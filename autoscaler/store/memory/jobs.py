"""Jobs in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.jobs import JobFilter, JobOrder, JobPlace, Jobs, new_id


class MemoryJobs(Jobs):
    """Jobs of the shared tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add(self, spec: JobSpec, now_seconds: float, driver: str | None = None) -> JobRecord:
        tables = self._tables
        with tables.lock:
            tables.require_driver(spec.study, driver)
            record = JobRecord(
                id=new_id(spec.name, tables.jobs_named(spec.name)),
                number=len(tables.jobs) + 1,
                spec=spec,
                phase=JobPhase.PENDING,
                submitted_seconds=now_seconds,
            )
            tables.keep_job(record)
            return record

    def of_name(self, name: str) -> tuple[JobRecord, ...]:
        with self._tables.lock:
            return tuple(self._tables.jobs_named(name))

    def of_directory(self, directory: str) -> tuple[JobRecord, ...]:
        return tuple(job for job in self.all() if job.spec.shared_directory == directory)

    def of_ids(self, jobs: Collection[str]) -> Mapping[str, JobRecord]:
        with self._tables.lock:
            known = self._tables.jobs
            return {job: known[job] for job in jobs if job in known}

    def get(self, job: str) -> JobRecord:
        with self._tables.lock:
            return self._tables.job(job)

    def alive(self) -> tuple[JobRecord, ...]:
        with self._tables.lock:
            return self._tables.alive_jobs.all()

    def ended_with_lighthouse(self) -> tuple[JobRecord, ...]:
        with self._tables.lock:
            return self._tables.ended_jobs_with_lighthouse.all()

    def all(self) -> tuple[JobRecord, ...]:
        with self._tables.lock:
            return tuple(self._tables.jobs.values())

    def page(
        self,
        wanted: JobFilter,
        order: JobOrder,
        limit: int | None,
        after: JobPlace | None = None,
    ) -> tuple[JobRecord, ...]:
        is_reversed = order is JobOrder.NEWEST

        def key(name: str, number: int) -> tuple[str, int]:
            return (name if order is JobOrder.NAME else "", -number if is_reversed else number)

        listed = sorted(
            self._permitted(wanted),
            key=lambda record: key(record.spec.name, record.number),
        )
        if after is not None:
            begin = key(after.name, after.number)
            listed = [job for job in listed if key(job.spec.name, job.number) > begin]
        return tuple(listed[:limit])

    def phase_counts(self, wanted: JobFilter) -> Mapping[JobPhase, int]:
        return Counter(record.phase for record in self._permitted(wanted))

    def _permitted(self, wanted: JobFilter) -> list[JobRecord]:
        records = self.all()
        permitted = [job for job in records if wanted.permits(job)]
        if not wanted.is_latest:
            return permitted
        last = {(job.spec.name, job.spec.owner.person): job.number for job in records}
        return [
            job for job in permitted if job.number == last[job.spec.name, job.spec.owner.person]
        ]

    def _change(
        self, job: str, change: Callable[[JobRecord], JobRecord], driver: str | None = None
    ) -> JobRecord:
        with self._tables.lock:
            before = self._tables.job(job)
            self._tables.require_driver(before.spec.study, driver)
            record = change(before)
            self._tables.keep_job(record)
            return record
