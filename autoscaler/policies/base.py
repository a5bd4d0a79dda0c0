"""The contract of every policy.

`tests/conformance/policy.py` holds it as tests; a policy that passes them can be put under the
controller.
"""

from __future__ import annotations

from typing import Protocol

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot


class Policy(Protocol):
    """Decides what every job is to hold next.

    Pure: no I/O, no clock, no randomness of its own; equal snapshots give equal plans, whatever
    the order of their jobs and offers. It may be called from any thread.

    A class that declares `adapts_batch = False` plans for jobs that keep to the batch that their
    owners asked for, one with `fills_batch = True` for jobs whose batch is as large as their
    devices bear; one that declares `oracle = True` reads `JobSnapshot.truth`. One with `only_on =
    "pool"` shares out machines and buys nothing, one with `only_on = "cloud"` the other way round.
    One with `plans_studies = True` plans for the trials of a study together; to the others they
    are jobs, but for those that wait at a barrier, which they do not see. One with `weighs_boots =
    True` compares what it takes from a job with the boots that this costs; of the others' plans
    the controller leaves out what would take a boot from a job without a new cause.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """One decision for each job of the snapshot, in the order of the jobs' ids.

        All targets together are within the limits, each within its job's bounds, and no more of
        an unavailable offer than is held. What cannot be known, solved or had is said in a reason
        or a note, never raised.
        """
        ...
