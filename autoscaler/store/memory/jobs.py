"""Jobs in memory."""

from __future__ import annotations

from collections.abc import Callable

from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.jobs import Jobs, new_id


class MemoryJobs(Jobs):
    """Jobs of the shared tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def add(self, spec: JobSpec, now_seconds: float) -> JobRecord:
        tables = self._tables
        with tables.lock:
            record = JobRecord(
                id=new_id(spec.name, tables.jobs_named(spec.name)),
                number=len(tables.jobs) + 1,
                spec=spec,
                phase=JobPhase.PENDING,
                submitted_seconds=now_seconds,
            )
            tables.keep_job(record)
            return record

    def _of_name(self, name: str) -> tuple[JobRecord, ...]:
        with self._tables.lock:
            return tuple(self._tables.jobs_named(name))

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

    def _change(self, job: str, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        with self._tables.lock:
            record = change(self._tables.job(job))
            self._tables.keep_job(record)
            return record
