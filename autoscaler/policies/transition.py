"""Order of releases and acquisitions when a plan is carried out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.supply.supply import Supply, with_tolerance
from autoscaler.goodput.throughput import FloatArray


def releases_first(
    changes: Sequence[tuple[Allocation | None, Allocation | None]], supply: Supply
) -> tuple[bool, ...]:
    """Return for each change (held, target) whether it has to wait for a release.

    Targets take room in the order of the changes, beside all that is held. A change without room
    waits until its own or other instances are released.
    """
    acquired = [_acquired(held, target) for held, target in changes]
    used: list[float] = supply.uses(held for held, _ in changes).tolist()
    maxima: list[float] = with_tolerance(supply.maximum).tolist()
    must_wait = []
    for extra_uses in _uses(acquired, supply).T.tolist():
        if not any(extra_uses):
            must_wait.append(False)
            continue
        rows = list(zip(used, extra_uses, maxima, strict=True))
        has_room = all(extra == 0 or before + extra <= limit for before, extra, limit in rows)
        if has_room:
            used = [before + extra for before, extra, _ in rows]
        must_wait.append(not has_room)
    return tuple(must_wait)


def _uses(allocations: Sequence[Allocation | None], supply: Supply) -> FloatArray:
    """Return the use of each limit by each allocation, (R, n)."""
    index = supply.terms.index
    if not supply.offers:
        return np.zeros((len(supply.limits), len(allocations)))
    counts_by_offer = [
        (allocation.offer, allocation.instances) if allocation else ("", 0)
        for allocation in allocations
    ]
    offer = np.array([index.get(name, 0) for name, _ in counts_by_offer], dtype=np.int64)
    count = np.array([instances if name in index else 0 for name, instances in counts_by_offer])
    uses: FloatArray = supply.unit_uses[:, offer] * count
    return uses


def _acquired(held: Allocation | None, target: Allocation | None) -> Allocation | None:
    """Return the instances of the target that are not held yet; None if there are none."""
    if target is None or held is None or held.offer != target.offer:
        return target
    extra = target.instances - held.instances
    return Allocation(target.offer, extra, target.devices_used) if extra > 0 else None
