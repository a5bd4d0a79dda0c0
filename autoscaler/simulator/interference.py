"""Distributed jobs that share a machine: they are in each other's way on its network.

Source: Qiao et al., Pollux (OSDI'21), sections 4.2 and 5.3.2, and the simulator published with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping


def crowded(machines: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The jobs on several machines, of which one also has a part of another such job.

    Args:
        machines: those that each job has devices on (job id -> machine ids).
    """
    spread = {job: frozenset(own) for job, own in machines.items() if len(set(own)) > 1}
    on_each = Counter(machine for own in spread.values() for machine in own)
    return frozenset(job for job, own in spread.items() if any(on_each[m] > 1 for m in own))
