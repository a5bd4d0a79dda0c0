"""Allocations that a job holds, trains on and has on standby, from its instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autoscaler.controller.jobs.gangs import gang_of
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase


def held_allocation(instances: Sequence[HeldInstance]) -> Allocation | None:
    """Return the allocation that a job holds or has ordered and keeps; None for nothing.

    Only instances of the offer ordered last count. Instances on standby count if there are no
    others.
    """
    wanted = [held for held in instances if held.desired is Desired.PRESENT]
    wanted = [held for held in wanted if not held.stands_by] or wanted
    if not wanted:
        return None
    latest = max(wanted, key=lambda held: (held.ordered_seconds, held.id))
    alike = [held for held in wanted if held.offer == latest.offer]
    return Allocation(latest.offer, len(alike), latest.devices_used)


def standby_allocation(instances: Sequence[HeldInstance]) -> Allocation | None:
    """Return the allocation on standby beside the held one; None for none."""
    standing = [held for held in instances if held.stands_by]
    held = held_allocation(instances)
    if not standing or held is None or standing[0].offer == held.offer:
        return None
    return Allocation(standing[0].offer, len(standing), standing[0].devices_used)


def trained_allocation(instances: Sequence[HeldInstance]) -> Allocation | None:
    """Return the allocation that a job trains on now; of several offers the largest group."""
    training = [
        held
        for held in instances
        if not held.stands_by
        and not _is_in_part(held, instances)
        and (
            held.phase is InstancePhase.TRAINING
            or (held.phase is InstancePhase.DRAINING and held.training_seconds is not None)
        )
    ]
    if not training:
        return None
    counted = Counter((held.offer, held.devices_used) for held in training)
    (offer, devices_used), instances_held = max(
        counted.items(), key=lambda item: (item[1], item[0])
    )
    return Allocation(offer, instances_held, devices_used)


def _is_in_part(held: HeldInstance, instances: Sequence[HeldInstance]) -> bool:
    """Return whether an instance is in a gang of which some members do not train."""
    gang = gang_of(held, instances)
    return gang is not None and not gang.trains


def group_of(held: Allocation | None, instances: Sequence[HeldInstance]) -> list[HeldInstance]:
    """Return the instances of a held allocation."""
    return [
        instance
        for instance in instances
        if held is not None
        and instance.offer == held.offer
        and instance.desired is Desired.PRESENT
    ]
