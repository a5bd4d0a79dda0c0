"""In which order what goes and what comes can happen."""

from __future__ import annotations

from collections.abc import Sequence

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.supply import Supply, fits


def releases_first(
    changes: Sequence[tuple[Allocation | None, Allocation | None]], supply: Supply
) -> tuple[bool, ...]:
    """Of each change (held, target), whether something has to go before what comes has room.

    What comes takes the room beside all that is held now, in the order of the changes; a change
    without room waits until something has gone, its own instances or others'.
    """
    used = supply.uses(held for held, _ in changes)
    waits = []
    for held, target in changes:
        extra = supply.uses([_coming(held, target)])
        has_room = bool((fits(used + extra, supply.maximum) | (extra == 0)).all())
        if has_room:
            used = used + extra
        waits.append(not has_room)
    return tuple(waits)


def _coming(held: Allocation | None, target: Allocation | None) -> Allocation | None:
    """The instances of the target that are not held already."""
    if target is None or held is None or held.offer != target.offer:
        return target
    extra = target.instances - held.instances
    return Allocation(target.offer, extra, target.devices_used) if extra > 0 else None
