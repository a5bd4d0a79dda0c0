"""Cohorts: jobs that choose among the same sizes by the same throughput formulas.

Batch bounds, and whether a job can run at a size at all, differ within a cohort.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.economics.supply.sizes import Sizes, permitted_sizes
from autoscaler.economics.supply.supply import BoolArray, IntArray, MarketTerms, Supply
from autoscaler.goodput.formulas import formula_of
from autoscaler.goodput.many import Places
from autoscaler.goodput.throughput import FloatArray, Formula


@dataclass(frozen=True, slots=True)
class CohortKey:
    """Key of a cohort: jobs with equal keys belong to one cohort.

    Attributes:
        terms: offers and limits.
        permitted: indices of the offers that the jobs may use.
        instances: bounds of the jobs.
        formulas: kinds of device with a model, and the formula of each.
        draws: number K of draws of each model.
        shard: devices that hold one copy of the jobs' model.
    """

    terms: MarketTerms
    permitted: tuple[int, ...]
    instances: InstanceBounds
    formulas: tuple[tuple[str, Formula], ...]
    draws: int
    shard: int = 1


def cohort_key(job: JobSnapshot, supply: Supply) -> CohortKey:
    """Return the cohort key of a job with at least one model."""
    models = sorted(job.models.items())
    return CohortKey(
        terms=supply.terms,
        permitted=supply.permitted(job.instances),
        instances=job.instances,
        formulas=tuple((kind, formula_of(model.point)) for kind, model in models),
        draws=len(models[0][1].draws),
        shard=job.parallelism.shard,
    )


@dataclass(frozen=True, eq=False)
class Cohort:
    """A sizes that jobs may hold, grouped by offer, and the S places where they train.

    A place is a pair of instances and total devices on one kind of device.

    Attributes:
        like: key of the cohort.
        sizes: A allocations, also of unavailable offers.
        places: kind of device -> places.
        place: index of each size's place among the places of all kinds, (A,).
    """

    like: CohortKey
    sizes: Sizes
    places: Mapping[str, Places]
    place: IntArray

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        """Kind of device -> its slice of the S places."""
        ends = np.cumsum([0, *(len(places.devices) for places in self.places.values())]).tolist()
        return {kind: slice(*ends[i : i + 2]) for i, kind in enumerate(self.places)}

    @cached_property
    def index(self) -> Mapping[tuple[int, int, int], int]:
        """(offer, instances, devices used) -> index of the size."""
        rows = np.stack([self.sizes.offer, self.sizes.instances, self.sizes.devices_used])
        return {tuple(size): row for row, size in enumerate(rows.T.tolist())}

    @cached_property
    def _trained_at(self) -> Mapping[tuple[str, int, int], list[int]]:
        """(kind, instances, devices) -> indices of the sizes that train there."""
        sizes_by_place: dict[tuple[str, int, int], list[int]] = {}
        for kind, places in self.places.items():
            start = self.slices[kind].start
            for pair, place in places.index.items():
                sizes_by_place[(kind, *pair)] = np.flatnonzero(
                    self.place == start + place
                ).tolist()
        return sizes_by_place

    def measured(self, models: Mapping[str, ThroughputModel]) -> list[int]:
        """Return the indices of the sizes with measured step times."""
        trained_at = self._trained_at
        return [
            size
            for kind in self.places
            for pair in models[kind].measured
            for size in trained_at.get((kind, *pair), ())
        ]

    @cached_property
    def uses(self) -> FloatArray:
        """Use of each limit by each size, (R, A)."""
        uses: FloatArray = self.like.terms.unit_uses[:, self.sizes.offer] * self.sizes.instances
        return uses

    @cached_property
    def can_be_had(self) -> BoolArray:
        """Whether more instances of each size's offer can be had now, (A,)."""
        terms = self.like.terms
        is_unavailable = [offer.id in terms.unavailable for offer in terms.offers]
        return ~np.array(is_unavailable, dtype=np.bool_)[self.sizes.offer]

    @cached_property
    def of_offer(self) -> tuple[slice, ...]:
        """Slices of the sizes, one for each offer that has any."""
        starts = np.flatnonzero(np.diff(self.sizes.offer, prepend=-1)).tolist()
        ends = [*starts[1:], len(self.sizes.offer)]
        return tuple(slice(start, end) for start, end in zip(starts, ends, strict=True))


def cohort_of(job: JobSnapshot, like: CohortKey, supply: Supply) -> Cohort:
    """Build the cohort of a job with key `like`."""
    terms = like.terms.with_capacity
    open_supply = replace(supply, terms=terms)
    sizes = permitted_sizes(replace(job, held=None), open_supply)
    devices = sizes.instances * sizes.devices_used
    places: dict[str, Places] = {}
    place = np.full(len(sizes.offer), -1, dtype=np.int64)
    offset = 0
    for kind, formula in like.formulas:
        if kind not in terms.of_kind:
            continue
        of_kind = np.flatnonzero(terms.of_kind[kind][sizes.offer])
        pairs = np.stack([sizes.instances[of_kind], devices[of_kind]], axis=1)
        distinct, position = np.unique(pairs, axis=0, return_inverse=True)
        kind_places = Places(kind, distinct[:, 0].copy(), distinct[:, 1].copy())
        if not len(distinct):
            continue
        formula_runs = formula.runs(kind_places.devices)
        places[kind] = kind_places
        place[of_kind] = np.where(formula_runs[position], position + offset, -1)
        offset += len(distinct)
    has_place = place >= 0
    return Cohort(like, sizes.take(has_place), places, place[has_place])
