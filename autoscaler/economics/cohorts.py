"""Jobs that choose among the same sizes by the same formulas: what holds for all of them.

At what batch a job may run is its own, and so is whether it can run at a size at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.snapshot import JobSnapshot, ThroughputModel
from autoscaler.economics.sizes import Sizes, permitted_sizes
from autoscaler.economics.supply import BoolArray, IntArray, Supply, Terms
from autoscaler.goodput.formulas import formula_of
from autoscaler.goodput.many import Places
from autoscaler.goodput.throughput import FloatArray, Formula


@dataclass(frozen=True, slots=True)
class Likeness:
    """What jobs of one cohort have in common; two that are equal are of one cohort.

    `formulas` has the kinds of device that there are models of, each with its formula.
    """

    terms: Terms
    permitted: tuple[int, ...]
    instances: InstanceBounds
    formulas: tuple[tuple[str, Formula], ...]
    draws: int


def likeness(job: JobSnapshot, supply: Supply) -> Likeness:
    """That of a job with at least one model."""
    models = sorted(job.models.items())
    return Likeness(
        terms=supply.terms,
        permitted=supply.permitted(job.instances),
        instances=job.instances,
        formulas=tuple((kind, formula_of(model.point)) for kind, model in models),
        draws=len(models[0][1].draws),
    )


@dataclass(frozen=True, eq=False)
class Cohort:
    """A sizes that jobs may hold, each offer's together, and the S places where they train.

    Attributes:
        like: what its jobs have in common.
        sizes: A of them, also of offers that can't be had now.
        places: by kind of device, what each is reckoned for.
        place: where each size trains: its index among the places of all kinds, (A,).
    """

    like: Likeness
    sizes: Sizes
    places: Mapping[str, Places]
    place: IntArray

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        """Of each kind, its part of the S places."""
        ends = np.cumsum([0, *(len(own.devices) for own in self.places.values())]).tolist()
        return {kind: slice(*ends[i : i + 2]) for i, kind in enumerate(self.places)}

    @cached_property
    def index(self) -> Mapping[tuple[int, int, int], int]:
        """Where each (offer, instances, devices used) stands."""
        rows = np.stack([self.sizes.offer, self.sizes.instances, self.sizes.devices_used])
        return {tuple(size): at for at, size in enumerate(rows.T.tolist())}

    @cached_property
    def _trained_at(self) -> Mapping[tuple[str, int, int], list[int]]:
        """The sizes of each (kind, instances, devices)."""
        found: dict[tuple[str, int, int], list[int]] = {}
        for kind, own in self.places.items():
            start = self.slices[kind].start
            for pair, place in own.index.items():
                found[(kind, *pair)] = np.flatnonzero(self.place == start + place).tolist()
        return found

    def measured(self, models: Mapping[str, ThroughputModel]) -> list[int]:
        """Which sizes have step times of their own."""
        trained_at = self._trained_at
        return [
            size
            for kind in self.places
            for pair in models[kind].measured
            for size in trained_at.get((kind, *pair), ())
        ]

    @cached_property
    def uses(self) -> FloatArray:
        """Of each limit, (R, A)."""
        uses: FloatArray = self.like.terms.unit_uses[:, self.sizes.offer] * self.sizes.instances
        return uses

    @cached_property
    def can_be_had(self) -> BoolArray:
        """Whether more of its offer can be had now, (A,)."""
        terms = self.like.terms
        gone = [offer.id in terms.unavailable for offer in terms.offers]
        return ~np.array(gone, dtype=np.bool_)[self.sizes.offer]

    @cached_property
    def of_offer(self) -> tuple[slice, ...]:
        """The sizes of each offer that has any."""
        starts = np.flatnonzero(np.diff(self.sizes.offer, prepend=-1)).tolist()
        ends = [*starts[1:], len(self.sizes.offer)]
        return tuple(slice(start, end) for start, end in zip(starts, ends, strict=True))


def cohort_of(job: JobSnapshot, like: Likeness, supply: Supply) -> Cohort:
    """The cohort of a job."""
    terms = replace(like.terms, unavailable=frozenset())
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
        own = Places(kind, distinct[:, 0].copy(), distinct[:, 1].copy())
        if not len(distinct):
            continue
        runs = formula.runs(own.devices)
        places[kind] = own
        place[of_kind] = np.where(runs[position], position + offset, -1)
        offset += len(distinct)
    runs = place >= 0
    return Cohort(like, sizes.take(runs), places, place[runs])
