"""Measurements in a database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeAlias

from sqlalchemy import Select, func, insert, inspect, select, update
from sqlalchemy.orm import Session

from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.store.records.step_times import Configuration, Size, StepTimes, latest_eras, merged
from autoscaler.store.repositories.measurements import (
    Book,
    Mean,
    Measurements,
    NoisePoint,
)
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.job_facts import FactCache, grouped
from autoscaler.store.sql.jobs import job_phase, job_row
from autoscaler.store.sql.schema import DurationRow, JobRow, ModelsRow, NoiseRow, ObservationRow

_Observations: TypeAlias = tuple[StepObservation, ...]
_Durations: TypeAlias = Mapping[tuple[str | None, str], Mean]


_CONFIGURATION = [field.name for field in fields(Configuration)]
_OBSERVATION_COLUMNS = [
    getattr(ObservationRow, name)
    for name in ("job", *_CONFIGURATION, *(field.name for field in fields(StepTimes)))
]


class SqlMeasurements(Measurements):
    """Repository on the tables of observations, durations, noise and models."""

    def __init__(self, database: Database, facts: FactCache) -> None:
        self._database = database
        self._facts = facts

    def add_observations(
        self, job: str, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        with self._database.write() as session:
            job_phase(session, job)
            SqlBook(self._database, session, job).add_observations(observations, now_seconds)

    def observations(self, job: str) -> tuple[StepObservation, ...]:
        def load(session: Session, jobs: Sequence[str]) -> Mapping[str, _Observations]:
            rows = session.execute(_latest_first(jobs).with_only_columns(*_OBSERVATION_COLUMNS))
            times = grouped(jobs, (_observation(values) for values in rows))
            return {name: _observations(of_job) for name, of_job in times.items()}

        return self._facts.of_job("observations", job, load)

    def observations_revision(self, job: str) -> int:
        def load(session: Session, jobs: Sequence[str]) -> Mapping[str, int]:
            revisions = select(JobRow.id, JobRow.observations_revision)
            rows = session.execute(revisions.where(JobRow.id.in_(jobs)))
            return dict.fromkeys(jobs, 0) | {job: revision for job, revision in rows}

        return self._facts.of_job("observations revision", job, load)

    def step_seconds(self, job: str) -> float | None:
        def load(session: Session) -> float | None:
            row = session.scalar(_latest_first((job,)).limit(1))
            return None if row is None else row.step_seconds

        return self._database.cached(("step seconds", job), load)

    def add_duration(self, job: str, offer: str | None, what: str, seconds: float) -> None:
        with self._database.write() as session:
            job_phase(session, job)
            SqlBook(self._database, session, job).add_duration(offer, what, seconds)

    def durations(self, job: str) -> Mapping[tuple[str | None, str], Mean]:
        def load(session: Session, jobs: Sequence[str]) -> Mapping[str, _Durations]:
            durations: dict[str, dict[tuple[str | None, str], Mean]] = {name: {} for name in jobs}
            for row in session.scalars(select(DurationRow).where(DurationRow.job.in_(jobs))):
                mean = Mean(row.mean_seconds, row.count)
                durations[row.job][row.offer or None, row.what] = mean
            return durations

        return self._facts.of_job("durations", job, load)

    def noise_history(self, job: str) -> tuple[NoisePoint, ...]:
        rows = select(NoiseRow).where(NoiseRow.job == job).order_by(NoiseRow.id)
        with self._database.read() as session:
            return tuple(row.to(NoisePoint) for row in session.scalars(rows))

    def save_all_models(self, models: Mapping[str, Mapping[str, ThroughputModel]]) -> None:
        with self._database.write() as session:
            known = set(session.scalars(select(JobRow.id).where(JobRow.id.in_(models))))
            for job in models.keys() - known:
                job_phase(session, job)  # raises
            stored = set(session.scalars(select(ModelsRow.job).where(ModelsRow.job.in_(models))))
            for statement, jobs in (
                (update(ModelsRow), stored),
                (insert(ModelsRow), models.keys() - stored),
            ):
                rows = [{"job": job, "models": models[job]} for job in jobs]
                if rows:
                    session.execute(statement, rows)
            self._database.drop_after_commit(session, *(("models", job) for job in models))

    def models(self, job: str) -> Mapping[str, ThroughputModel]:
        def load(session: Session) -> Mapping[str, ThroughputModel]:
            row = session.get(ModelsRow, job)
            return {} if row is None else row.models

        return self._database.cached(("models", job), load)

    def models_of(self, jobs: Collection[str]) -> Mapping[str, Mapping[str, ThroughputModel]]:
        rows = select(ModelsRow.job, ModelsRow.models).where(ModelsRow.job.in_(jobs))
        with self._database.read() as session:
            return {job: models for job, models in session.execute(rows)}


class SqlBook(Book):
    """Rows of one job's measurements, within a transaction."""

    def __init__(self, database: Database, session: Session, job: str) -> None:
        self._session = session
        self._job = job
        kept = ("observations revision", "observations", "durations", "step seconds")
        database.drop_after_commit(session, *((name, job) for name in kept))
        self._eras: dict[Size, int] = {}

    def _merge(
        self, configuration: Configuration, new: StepObservation, now_seconds: float
    ) -> None:
        key = {"job": self._job, **asdict(configuration)}
        row = self._session.get(ObservationRow, key)
        known = None if row is None else row.to(StepTimes)
        if row is None:
            row = ObservationRow(**key)
            self._session.add(row)
        times = merged(known, self._era(configuration.size), new, now_seconds)
        row.take(times)
        self._eras[configuration.size] = times.era

    def _era(self, size: Size) -> int:
        """Return the latest era of the configurations of a size; 0 if there are none."""
        if size not in self._eras:
            eras = select(func.max(ObservationRow.era)).filter_by(job=self._job, **asdict(size))
            with self._session.no_autoflush:
                self._eras[size] = self._session.scalar(eras) or 0
        return self._eras[size]

    def _forget_all_but(self, maximum: int) -> None:
        self._session.flush()
        for row in self._session.scalars(_latest_first((self._job,)).offset(maximum)):
            self._session.delete(row)

    def _count_revision(self) -> None:
        job_row(self._session, self._job).observations_revision += 1

    def _merge_duration(self, offer: str | None, what: str, seconds: float) -> None:
        row = self._session.get(DurationRow, (self._job, offer or "", what))
        known = Mean() if row is None else Mean(row.mean_seconds, row.count)
        if row is None:
            row = DurationRow(job=self._job, offer=offer or "", what=what)
            self._session.add(row)
        mean = known.with_one_more(seconds)
        row.mean_seconds, row.count = mean.seconds, mean.count

    def _last_noise_examples(self) -> float:
        points = select(NoiseRow.progress_examples).where(NoiseRow.job == self._job)
        return self._session.scalar(points.order_by(NoiseRow.id.desc()).limit(1)) or 0.0

    def _keep_noise(self, point: NoisePoint) -> None:
        row = NoiseRow(job=self._job)
        row.take(point)
        self._session.add(row)


def _observation(values: Sequence[Any]) -> tuple[str, tuple[Configuration, StepTimes]]:
    """Return the job, the configuration and the step times of `_OBSERVATION_COLUMNS`."""
    job, *others = values
    count = len(_CONFIGURATION)
    return job, (Configuration(*others[:count]), StepTimes(*others[count:]))


def _observations(times: Sequence[tuple[Configuration, StepTimes]]) -> _Observations:
    """Return the step times of one job, whose eras count back from the latest of each size."""
    eras = latest_eras(times)
    return tuple(
        known.observation(configuration, known.era - eras[configuration.size])
        for configuration, known in times
    )


def _latest_first(jobs: Collection[str]) -> Select[ObservationRow]:
    """Return the rows of some jobs, those of each the latest first."""
    key = inspect(ObservationRow).primary_key
    rows = select(ObservationRow).where(ObservationRow.job.in_(jobs))
    return rows.order_by(ObservationRow.updated_seconds.desc(), *key)
