"""Interference of distributed jobs that share a machine's network.

Source: Qiao et al., Pollux (OSDI'21), sections 4.2 and 5.3.2, and the simulator published with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping


def crowded(machines: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return the distributed jobs that share a machine with another distributed job.

    Args:
        machines: job id -> ids of the machines on which it has devices.
    """
    spread = {
        job: frozenset(machine_ids)
        for job, machine_ids in machines.items()
        if len(set(machine_ids)) > 1
    }
    jobs_on_machine = Counter(
        machine for machine_ids in spread.values() for machine in machine_ids
    )
    return frozenset(
        job
        for job, machine_ids in spread.items()
        if any(jobs_on_machine[machine] > 1 for machine in machine_ids)
    )
