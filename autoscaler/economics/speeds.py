"""How fast jobs are at the sizes of their cohort, kept until something is measured of them.

Neither prices nor limits nor what is held move any of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.cohorts import Cohort
from autoscaler.economics.keeping import Kept, Rows, with_rows
from autoscaler.economics.supply import BoolArray, IntArray
from autoscaler.goodput.draws import noise_belief, normals
from autoscaler.goodput.many import (
    Bounds,
    Drawn,
    one_less,
    runs_at,
    seconds_per_example,
    theta_of,
)
from autoscaler.goodput.throughput import FloatArray

# Draws by which all places are looked at, and places of each kind of device that all are for.
_PROBES = 4
_PLACES = 24
_KEPT_BYTES = 2_000_000_000


class Speeds:
    """Of the jobs of a cohort, a row each: in all S places by few draws, in some by all K.

    Attributes:
        places: by kind of device.
        slices: of each kind, its part of the S places.
        chosen_slices: of each kind, its part of the C places that all draws are for.
    """

    def __init__(self, cohort: Cohort) -> None:
        self.places, self.slices = cohort.places, cohort.slices
        self._formulas, self._draws = dict(cohort.like.formulas), cohort.like.draws
        counts = [min(_PLACES, len(own.devices)) for own in self.places.values()]
        ends = np.cumsum([0, *counts]).tolist()
        self.chosen_slices = {k: slice(*ends[i : i + 2]) for i, k in enumerate(self.places)}
        every = sum(len(own.devices) for own in self.places.values())
        self._rows = Rows()
        self._known: dict[str, JobSnapshot] = {}
        self._theta: dict[str, Any] = {
            kind: np.empty((0, self._draws, len(self._formulas[kind].names)), dtype=np.float32)
            for kind in self.places
        }
        self._numbers: dict[BatchBounds, int] = {}
        self._number = np.empty(0, dtype=np.int64)
        self._noise = np.empty((0, self._draws))
        self._left = np.empty((0, every), dtype=np.float32)
        self._probed: Any = np.empty((0, every), dtype=np.float32)
        self._runs = np.empty((0, every), dtype=np.bool_)
        self._chosen = np.empty((0, ends[-1]), dtype=np.int64)
        self._seconds: Any = np.empty((0, self._draws, ends[-1]), dtype=np.float32)

    @property
    def size_bytes(self) -> int:
        """About what is kept."""
        arrays = (self._seconds, self._left, self._probed, self._chosen, *self._theta.values())
        return sum(each.nbytes for each in arrays)

    def rows(self, jobs: Sequence[JobSnapshot]) -> IntArray:
        """The row of each job, (n,); others are forgotten."""
        rows = self._rows.of([job.id for job in jobs])
        self._known = {job.id: self._known[job.id] for job in jobs if job.id in self._known}
        most = int(rows.max(initial=-1)) + 1
        self._theta = {kind: with_rows(theta, most) for kind, theta in self._theta.items()}
        self._number, self._noise = with_rows(self._number, most), with_rows(self._noise, most)
        self._left, self._probed = with_rows(self._left, most), with_rows(self._probed, most)
        self._runs, self._chosen = with_rows(self._runs, most), with_rows(self._chosen, most)
        self._seconds = with_rows(self._seconds, most)
        numbers = self._numbers
        self._number[rows] = [numbers.setdefault(job.batch, len(numbers)) for job in jobs]
        return rows

    def look(self, jobs: Sequence[JobSnapshot], rows: IntArray) -> None:
        """Look again at those of J jobs, at their rows, of which something else was measured."""
        anew = [at for at, job in enumerate(jobs) if not self._is_known(job)]
        if not anew:
            return
        jobs, rows = [jobs[at] for at in anew], rows[anew]
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
            every = np.tile(np.arange(len(places.devices)), (len(jobs), 1))
            probed = seconds_per_example(
                self._drawn(kind, jobs, rows).first(_PROBES), places, every
            )
            self._probed[rows, part] = probed.mean(axis=1)
        self._chosen[rows] = -1
        self._known |= {job.id: job for job in jobs}

    def left(self, rows: IntArray) -> FloatArray:
        """What share of the goodput is left with one instance less, (J, S)."""
        return self._left[rows].astype(np.float64)

    def probed(self, rows: IntArray) -> FloatArray:
        """Mean seconds per example by the first draws, (J, S)."""
        probed: FloatArray = self._probed[rows]
        return probed

    def runs(self, rows: IntArray) -> BoolArray:
        """Where each job can run at all, (J, S)."""
        return self._runs[rows]

    def seconds(self, jobs: Sequence[JobSnapshot], rows: IntArray, chosen: IntArray) -> FloatArray:
        """Seconds per example in all draws, (J, K, C), of the C places that each job chose.

        `chosen`, (J, C), are rising for each kind of device.
        """
        for kind, part in self.chosen_slices.items():
            own = chosen[:, part]
            (anew,) = (self._chosen[rows, part] != own).any(axis=1).nonzero()
            if not len(anew):
                continue
            drawn = self._drawn(kind, [jobs[at] for at in anew.tolist()], rows[anew])
            found = seconds_per_example(
                drawn, self.places[kind], own[anew] - self.slices[kind].start
            )
            self._seconds[rows[anew], :, part] = found
            self._chosen[rows[anew], part] = own[anew]
        every: FloatArray = self._seconds[rows]
        return every

    def _drawn(self, kind: str, jobs: Sequence[JobSnapshot], rows: IntArray) -> Drawn:
        models = [job.models[kind] for job in jobs]
        theta, noise = self._theta[kind][rows], self._noise[rows]
        return Drawn(models, theta, noise, self._bounds_of(rows))

    def _bounds_of(self, rows: IntArray) -> Bounds:
        return Bounds(list(self._numbers), self._number[rows])

    def _is_known(self, job: JobSnapshot) -> bool:
        known = self._known.get(job.id)
        return (
            known is not None
            and known.noise == job.noise
            and known.batch == job.batch
            and has_same_models(known, job)
        )


def has_same_models(one: JobSnapshot, other: JobSnapshot) -> bool:
    """Whether the models of both, of the same kinds of device, are the same objects."""
    return one.models is other.models or all(
        one.models[kind] is model for kind, model in other.models.items()
    )


_KEPT: Kept[Speeds] = Kept(_KEPT_BYTES)


def speeds_of(cohort: Cohort) -> Speeds:
    """What is remembered of the jobs of such a cohort, whatever it was that they could have."""
    found = _KEPT.get(_basis(cohort))
    return Speeds(cohort) if found is None else found


def keep(cohort: Cohort, speeds: Speeds) -> None:
    """Remember it."""
    _KEPT.put(_basis(cohort), speeds, speeds.size_bytes)


def _basis(cohort: Cohort) -> Hashable:
    like = cohort.like
    places = [
        (kind, own.instances.tobytes(), own.devices.tobytes())
        for kind, own in cohort.places.items()
    ]
    return like.instances, like.formulas, like.draws, tuple(places)
