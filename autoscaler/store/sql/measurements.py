"""Measurements in a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Select, func, inspect, select
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
from autoscaler.store.sql.jobs import job_row
from autoscaler.store.sql.schema import DurationRow, JobRow, ModelsRow, NoiseRow, ObservationRow


class SqlMeasurements(Measurements):
    """Repository on the tables of observations, durations, noise and models."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_observations(
        self, job: str, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        with self._database.write() as session:
            job_row(session, job)
            SqlBook(self._database, session, job).add_observations(observations, now_seconds)

    def observations(self, job: str) -> tuple[StepObservation, ...]:
        with self._database.read() as session:
            times = [
                (row.to(Configuration), row.to(StepTimes))
                for row in session.scalars(_latest_first(job))
            ]
        eras = latest_eras(times)
        return tuple(
            known.observation(configuration, known.era - eras[configuration.size])
            for configuration, known in times
        )

    def observations_revision(self, job: str) -> int:
        def load(session: Session) -> int:
            revision = select(JobRow.observations_revision).where(JobRow.id == job)
            return session.scalar(revision) or 0

        return self._database.cached(("observations revision", job), load)

    def step_seconds(self, job: str) -> float | None:
        def load(session: Session) -> float | None:
            row = session.scalar(_latest_first(job).limit(1))
            return None if row is None else row.step_seconds

        return self._database.cached(("step seconds", job), load)

    def add_duration(self, job: str, offer: str | None, what: str, seconds: float) -> None:
        with self._database.write() as session:
            job_row(session, job)
            SqlBook(self._database, session, job).add_duration(offer, what, seconds)

    def durations(self, job: str) -> Mapping[tuple[str | None, str], Mean]:
        def load(session: Session) -> Mapping[tuple[str | None, str], Mean]:
            rows = session.scalars(select(DurationRow).where(DurationRow.job == job))
            return {
                (row.offer or None, row.what): Mean(row.mean_seconds, row.count) for row in rows
            }

        return self._database.cached(("durations", job), load)

    def noise_history(self, job: str) -> tuple[NoisePoint, ...]:
        rows = select(NoiseRow).where(NoiseRow.job == job).order_by(NoiseRow.id)
        with self._database.read() as session:
            return tuple(row.to(NoisePoint) for row in session.scalars(rows))

    def save_models(self, job: str, models: Mapping[str, ThroughputModel]) -> None:
        with self._database.write() as session:
            job_row(session, job)
            session.merge(ModelsRow(job=job, models=models))
            self._database.drop_after_commit(session, ("models", job))

    def models(self, job: str) -> Mapping[str, ThroughputModel]:
        def load(session: Session) -> Mapping[str, ThroughputModel]:
            row = session.get(ModelsRow, job)
            return {} if row is None else row.models

        return self._database.cached(("models", job), load)


class SqlBook(Book):
    """Rows of one job's measurements, within a transaction."""

    def __init__(self, database: Database, session: Session, job: str) -> None:
        self._session = session
        self._job = job
        kept = ("observations revision", "durations", "step seconds")
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
        for row in self._session.scalars(_latest_first(self._job).offset(maximum)):
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


def _latest_first(job: str) -> Select[ObservationRow]:
    key = inspect(ObservationRow).primary_key
    rows = select(ObservationRow).where(ObservationRow.job == job)
    return rows.order_by(ObservationRow.updated_seconds.desc(), *key)
