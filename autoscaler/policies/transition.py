"""In which order what goes and what comes can happen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.supply import Supply, with_tolerance
from autoscaler.goodput.throughput import FloatArray


def releases_first(
    changes: Sequence[tuple[Allocation | None, Allocation | None]], supply: Supply
) -> tuple[bool, ...]:
    """Of each change (held, target), whether something has to go before what comes has room.

    What comes takes the room beside all that is held now, in the order of the changes; a change
    without room waits until something has gone, its own instances or others'.
    """
    coming = [_coming(held, target) for held, target in changes]
    used: list[float] = supply.uses(held for held, _ in changes).tolist()
    most: list[float] = with_tolerance(supply.maximum).tolist()
    waits = []
    for extra in _uses(coming, supply).T.tolist():
        rows = list(zip(used, extra, most, strict=True))
        has_room = all(more == 0 or before + more <= limit for before, more, limit in rows)
        if has_room:
            used = [before + more for before, more, _ in rows]
        waits.append(not has_room)
    return tuple(waits)


def _uses(allocations: Sequence[Allocation | None], supply: Supply) -> FloatArray:
    """What each takes of each limit, (R, n)."""
    index = supply.terms.index
    if not supply.offers:
        return np.zeros((len(supply.limits), len(allocations)))
    known = [(each.offer, each.instances) if each else ("", 0) for each in allocations]
    offer = np.array([index.get(name, 0) for name, _ in known], dtype=np.int64)
    count = np.array([number if name in index else 0 for name, number in known])
    uses: FloatArray = supply.unit_uses[:, offer] * count
    return uses


def _coming(held: Allocation | None, target: Allocation | None) -> Allocation | None:
    """The instances of the target that are not held already."""
    if target is None or held is None or held.offer != target.offer:
        return target
    extra = target.instances - held.instances
    return Allocation(target.offer, extra, target.devices_used) if extra > 0 else None
