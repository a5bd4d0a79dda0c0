"""Speeds of a cohort's jobs at its places, cached until new measurements.

Prices, limits and held allocations do not affect them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.allocation.cohorts import Cohort
from autoscaler.economics.supply.caches import (
    CacheSection,
    PlanningCache,
    RowAllocator,
    with_rows,
)
from autoscaler.economics.supply.supply import BoolArray, IntArray
from autoscaler.goodput.draws import noise_belief, normals
from autoscaler.goodput.many import (
    Bounds,
    DrawnModels,
    one_less,
    runs_at,
    seconds_per_example,
    theta_of,
)
from autoscaler.goodput.throughput import FloatArray

# Number of draws that evaluate all places, and of places per kind of device with all draws.
_PROBES = 4
_PLACES = 24
_SECTION: CacheSection[Speeds] = CacheSection(2_000_000_000)


class Speeds:
    """Speeds of a cohort's jobs, one row each: all S places with few draws, some with all K.

    Attributes:
        places: kind of device -> places.
        slices: kind of device -> slice of the S places.
        chosen_slices: kind of device -> slice of the C places with all draws.
    """

    def __init__(self, cohort: Cohort) -> None:
        self.places, self.slices = cohort.places, cohort.slices
        self._formulas, self._draws = dict(cohort.like.formulas), cohort.like.draws
        counts = [min(_PLACES, len(places.devices)) for places in self.places.values()]
        ends = np.cumsum([0, *counts]).tolist()
        self.chosen_slices = {kind: slice(*ends[i : i + 2]) for i, kind in enumerate(self.places)}
        place_count = sum(len(places.devices) for places in self.places.values())
        self._rows = RowAllocator()
        self._known: dict[str, JobSnapshot] = {}
        self._theta: dict[str, Any] = {
            kind: np.empty((0, self._draws, len(self._formulas[kind].names)), dtype=np.float32)
            for kind in self.places
        }
        self._numbers: dict[BatchBounds, int] = {}
        self._number = np.empty(0, dtype=np.int64)
        self._noise = np.empty((0, self._draws))
        self._left = np.empty((0, place_count), dtype=np.float32)
        self._probed: Any = np.empty((0, place_count), dtype=np.float32)
        self._runs = np.empty((0, place_count), dtype=np.bool_)
        self._chosen = np.empty((0, ends[-1]), dtype=np.int64)
        self._seconds: Any = np.empty((0, self._draws, ends[-1]), dtype=np.float32)

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        arrays = (self._seconds, self._left, self._probed, self._chosen, *self._theta.values())
        return sum(array.nbytes for array in arrays)

    def rows(self, jobs: Sequence[JobSnapshot]) -> IntArray:
        """Return the row of each job, (n,), and drop all other jobs."""
        rows = self._rows.of([job.id for job in jobs])
        self._known = {job.id: self._known[job.id] for job in jobs if job.id in self._known}
        row_count = int(rows.max(initial=-1)) + 1
        self._theta = {kind: with_rows(theta, row_count) for kind, theta in self._theta.items()}
        self._number, self._noise = (
            with_rows(self._number, row_count),
            with_rows(self._noise, row_count),
        )
        self._left, self._probed = (
            with_rows(self._left, row_count),
            with_rows(self._probed, row_count),
        )
        self._runs, self._chosen = (
            with_rows(self._runs, row_count),
            with_rows(self._chosen, row_count),
        )
        self._seconds = with_rows(self._seconds, row_count)
        numbers = self._numbers
        self._number[rows] = [numbers.setdefault(job.batch, len(numbers)) for job in jobs]
        return rows

    def look(self, jobs: Sequence[JobSnapshot], rows: IntArray) -> None:
        """Recompute the rows of those of the J jobs whose measurements changed."""
        changed = [index for index, job in enumerate(jobs) if not self._is_known(job)]
        if not changed:
            return
        jobs, rows = [jobs[index] for index in changed], rows[changed]
        belief = np.array([noise_belief(job.noise, job.batch.initial) for job in jobs])
        median, deviation = belief.T
        spread = deviation[:, None] * normals(self._draws, 1, "noise")[:, 0]
        self._noise[rows] = median[:, None] * np.exp(spread)
        bounds = self._bounds_of(rows)
        for kind, places in self.places.items():
            models, part = [job.models[kind] for job in jobs], self.slices[kind]
            self._theta[kind][rows] = theta_of(models, self._draws)
            self._left[rows, part] = one_less(models, median, bounds, places)
            self._runs[rows, part] = runs_at(bounds, self._formulas[kind], places)
            all_places = np.tile(np.arange(len(places.devices)), (len(jobs), 1))
            probed = seconds_per_example(
                self._drawn(kind, jobs, rows).first(_PROBES), places, all_places
            )
            self._probed[rows, part] = probed.mean(axis=1)
        self._chosen[rows] = -1
        self._known |= {job.id: job for job in jobs}

    def left(self, rows: IntArray) -> FloatArray:
        """Return the share of goodput left with one instance less, (J, S)."""
        return self._left[rows].astype(np.float64)

    def probed(self, rows: IntArray) -> FloatArray:
        """Return mean seconds per example over the first draws, (J, S)."""
        probed: FloatArray = self._probed[rows]
        return probed

    def runs(self, rows: IntArray) -> BoolArray:
        """Return whether each job can run at each place, (J, S)."""
        return self._runs[rows]

    def seconds(self, jobs: Sequence[JobSnapshot], rows: IntArray, chosen: IntArray) -> FloatArray:
        """Return seconds per example in all draws at the C chosen places, (J, K, C).

        `chosen`, (J, C), is increasing within each kind of device.
        """
        for kind, part in self.chosen_slices.items():
            places = chosen[:, part]
            (changed,) = (self._chosen[rows, part] != places).any(axis=1).nonzero()
            if not len(changed):
                continue
            drawn = self._drawn(kind, [jobs[index] for index in changed.tolist()], rows[changed])
            seconds_of_kind = seconds_per_example(
                drawn, self.places[kind], places[changed] - self.slices[kind].start
            )
            self._seconds[rows[changed], :, part] = seconds_of_kind
            self._chosen[rows[changed], part] = places[changed]
        seconds: FloatArray = self._seconds[rows]
        return seconds

    def _drawn(self, kind: str, jobs: Sequence[JobSnapshot], rows: IntArray) -> DrawnModels:
        models = [job.models[kind] for job in jobs]
        theta, noise = self._theta[kind][rows], self._noise[rows]
        return DrawnModels(models, theta, noise, self._bounds_of(rows))

    def _bounds_of(self, rows: IntArray) -> Bounds:
        return Bounds(list(self._numbers), self._number[rows])

    def _is_known(self, job: JobSnapshot) -> bool:
        known_job = self._known.get(job.id)
        return (
            known_job is not None
            and known_job.noise == job.noise
            and known_job.batch == job.batch
            and has_same_models(known_job, job)
        )


def has_same_models(one: JobSnapshot, other: JobSnapshot) -> bool:
    """Return whether two jobs have the same model objects for the same kinds of device."""
    return one.models is other.models or all(
        one.models[kind] is model for kind, model in other.models.items()
    )


def speeds_of(cohort: Cohort, cache: PlanningCache) -> Speeds:
    """Return the cached speeds of a cohort's jobs, or new empty ones.

    Offers and availability do not matter.
    """
    cached = cache.of(_SECTION).get(_cache_key(cohort))
    return Speeds(cohort) if cached is None else cached


def keep(cohort: Cohort, speeds: Speeds, cache: PlanningCache) -> None:
    """Cache the speeds of a cohort."""
    cache.of(_SECTION).put(_cache_key(cohort), speeds, speeds.size_bytes)


def _cache_key(cohort: Cohort) -> Hashable:
    like = cohort.like
    places = [
        (kind, kind_places.instances.tobytes(), kind_places.devices.tobytes())
        for kind, kind_places in cohort.places.items()
    ]
    return like.instances, like.formulas, like.draws, tuple(places)
