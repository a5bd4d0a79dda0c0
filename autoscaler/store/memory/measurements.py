"""Measurements in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.store.memory.tables import Tables
from autoscaler.store.records.step_times import Configuration, Size, StepTimes, merged
from autoscaler.store.repositories.measurements import (
    Book,
    Mean,
    Measurements,
    NoisePoint,
)


class MemoryMeasurements(Measurements):
    """Measurements in memory, with one book for each job."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._lock = tables.lock
        self._books: dict[str, MemoryBook] = {}
        self._models: dict[str, Mapping[str, ThroughputModel]] = {}

    def add_observations(
        self, job: str, observations: Sequence[StepObservation], now_seconds: float
    ) -> None:
        with self._lock:
            self.book(job).add_observations(observations, now_seconds)

    def observations(self, job: str) -> tuple[StepObservation, ...]:
        with self._lock:
            return self._books[job].latest_first() if job in self._books else ()

    def observations_revision(self, job: str) -> int:
        with self._lock:
            return self._books[job].revision if job in self._books else 0

    def step_seconds(self, job: str) -> float | None:
        latest = self.observations(job)
        return latest[0].step_seconds if latest else None

    def add_duration(self, job: str, offer: str | None, what: str, seconds: float) -> None:
        with self._lock:
            self.book(job).add_duration(offer, what, seconds)

    def durations(self, job: str) -> Mapping[tuple[str | None, str], Mean]:
        with self._lock:
            return dict(self._books[job].durations) if job in self._books else {}

    def noise_history(self, job: str) -> tuple[NoisePoint, ...]:
        with self._lock:
            return tuple(self._books[job].noise) if job in self._books else ()

    def save_all_models(self, models: Mapping[str, Mapping[str, ThroughputModel]]) -> None:
        with self._lock:
            for job in models:
                self._tables.job(job)
            self._models |= {job: dict(of_job) for job, of_job in models.items()}

    def models(self, job: str) -> Mapping[str, ThroughputModel]:
        return self._models.get(job, {})

    def models_of(self, jobs: Collection[str]) -> Mapping[str, Mapping[str, ThroughputModel]]:
        with self._lock:
            return {job: self._models[job] for job in jobs if job in self._models}

    def book(self, job: str) -> MemoryBook:
        """Return the book of a job; the caller holds the lock of the tables.

        Raises:
            UnknownJob: no job has this id.
        """
        book = self._books.get(job)
        if book is None:
            book = self._books[self._tables.job(job).id] = MemoryBook()
        return book


class MemoryBook(Book):
    """Measurements of one job, in memory."""

    def __init__(self) -> None:
        self.durations: dict[tuple[str | None, str], Mean] = {}
        self.noise: list[NoisePoint] = []
        self.revision = 0
        self._times: dict[Configuration, StepTimes] = {}
        self._means: dict[Configuration, StepObservation] = {}
        self._eras: dict[Size, int] = {}
        self._latest_first: tuple[StepObservation, ...] | None = ()

    def latest_first(self) -> tuple[StepObservation, ...]:
        """Return the means of each configuration, the latest first."""
        if self._latest_first is None:
            self._latest_first = tuple(
                self._means[configuration] for configuration in self._configurations_latest_first()
            )
        return self._latest_first

    def _configurations_latest_first(self) -> list[Configuration]:
        return sorted(
            self._times,
            key=lambda configuration: (
                -self._times[configuration].updated_seconds,
                configuration,
            ),
        )

    def _merge(
        self, configuration: Configuration, new: StepObservation, now_seconds: float
    ) -> None:
        size = configuration.size
        era = self._eras.get(size, 0)
        times = merged(self._times.get(configuration), era, new, now_seconds)
        self._times[configuration] = times
        self._means[configuration] = times.observation(configuration)
        self._latest_first = None
        if times.era > era:
            self._eras[size] = times.era
            for other, known in self._times.items():
                if other.size == size:
                    self._means[other] = known.observation(other, known.era - times.era)

    def _forget_all_but(self, maximum: int) -> None:
        if len(self._times) > maximum:
            for configuration in self._configurations_latest_first()[maximum:]:
                del self._times[configuration], self._means[configuration]

    def _count_revision(self) -> None:
        self.revision += 1

    def _merge_duration(self, offer: str | None, what: str, seconds: float) -> None:
        known = self.durations.get((offer or None, what), Mean())
        self.durations[offer or None, what] = known.with_one_more(seconds)

    def _last_noise_examples(self) -> float:
        return self.noise[-1].progress_examples if self.noise else 0.0

    def _keep_noise(self, point: NoisePoint) -> None:
        self.noise.append(point)
