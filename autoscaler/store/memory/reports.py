"""Reports and failures in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autoscaler.domain.report import Failure, ReportOrigin, ReportSample, TrainingReport
from autoscaler.store.memory.measurements import MemoryMeasurements
from autoscaler.store.memory.tables import Tables
from autoscaler.store.records.samples import SampleMark, kept, sample_of
from autoscaler.store.repositories.reports import (
    FailureRecord,
    InstanceMark,
    JobMark,
    Reports,
    failed,
    judge,
    reported,
)
from autoscaler.store.repositories.time_uses import lost_work_of


class MemoryReports(Reports):
    """Failures of each job by start. The jobs of the shared tables hold the reports."""

    def __init__(self, tables: Tables, measurements: MemoryMeasurements) -> None:
        self._tables = tables
        self._measurements = measurements
        self._job_marks: dict[str, JobMark] = {}
        self._instance_marks: dict[str, InstanceMark] = {}
        self._samples: dict[str, tuple[SampleMark, list[ReportSample]]] = {}
        self._failures: dict[str, dict[tuple[str, int], Failure]] = {}
        self._failure_records: list[FailureRecord] = []

    def add(
        self, job: str, report: TrainingReport, origin: ReportOrigin, now_seconds: float
    ) -> bool:
        tables = self._tables
        with tables.lock:
            record, held = tables.job(job), tables.instance(origin.instance)
            verdict = judge(
                report,
                origin,
                (record, self._job_marks.get(job, JobMark())),
                (held, self._instance_marks.get(held.id, InstanceMark())),
            )
            if verdict.counts:
                mark = InstanceMark(origin.started_seconds, report.step)
                self._instance_marks[held.id] = mark
                self._measurements.book(job).add_report(report, now_seconds)
            if verdict.is_latest:
                job_mark = self._job_marks.get(job, JobMark())
                lost = lost_work_of(record, job_mark, report, origin)
                if lost is not None:
                    tables.lost_work[job].append(lost)
                tables.keep_job(reported(record, report, now_seconds))
                self._job_marks[job] = JobMark(origin.attempt, origin.started_seconds)
                self._sample(job, report, now_seconds)
            return verdict.is_latest

    def _sample(self, job: str, report: TrainingReport, now_seconds: float) -> None:
        """Keep a sample of a report if one is due; the lock is held."""
        mark, samples = self._samples.get(job, (SampleMark(), []))
        if not mark.is_due(now_seconds):
            return
        if mark.is_full:
            mark, samples = mark.thinned(), list(kept(samples))
        samples.append(sample_of(report, now_seconds))
        self._samples[job] = mark.with_one_more(now_seconds), samples

    def samples(self, job: str) -> tuple[ReportSample, ...]:
        with self._tables.lock:
            return tuple(self._samples[job][1]) if job in self._samples else ()

    def add_failure(self, job: str, failure: Failure, now_seconds: float) -> bool:
        with self._tables.lock:
            record = self._tables.job(job)
            known = self._failures.setdefault(job, {})
            start = (failure.instance, failure.attempt)
            if start in known:
                return False
            known[start] = failure
            self._failure_records.append(FailureRecord(job, now_seconds, failure))
            self._tables.keep_job(failed(record, failure))
            return True

    def failures(self, job: str) -> tuple[Failure, ...]:
        with self._tables.lock:
            return tuple(self._failures.get(job, {}).values())

    def last_failures(self, jobs: Collection[str]) -> Mapping[str, Failure]:
        failures = {job: self.failures(job) for job in jobs}
        return {job: of_job[-1] for job, of_job in failures.items() if of_job}

    def recent_failures(
        self, since_seconds: float, job: str | None = None
    ) -> tuple[FailureRecord, ...]:
        with self._tables.lock:
            return tuple(
                record
                for record in self._failure_records
                if record.at_seconds >= since_seconds and job in (None, record.job)
            )
