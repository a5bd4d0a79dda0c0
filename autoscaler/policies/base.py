"""Interface of every scheduling policy.

`tests/conformance/policy.py` tests its contract. The controller can run any policy that passes.
"""

from __future__ import annotations

from typing import Protocol

from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot


class Policy(Protocol):
    """Policy that decides which allocation or placement each job holds next.

    Pure: no I/O, no clock, no randomness of its own. Equal snapshots give equal plans, whatever
    the order of their jobs and offers. Any thread may call it.

    Class attributes declare what a policy expects:

    * `adapts_batch = False`: jobs keep the batch that their owners chose.
    * `fills_batch = True`: each job's batch is as large as its devices hold.
    * `oracle = True`: the policy reads `JobSnapshot.truth`.
    * `only_on = "pool"`: it places jobs on shared machines and buys nothing.
    * `only_on = "cloud"`: it buys instances and ignores shared machines.
    * `plans_studies = True`: it plans the trials of a study together. Other policies see trials as
      jobs, except trials that wait at a barrier, which are hidden from them.
    * `weighs_boots = True`: it compares a gain with the cost of abandoning a boot under way. In
      the plans of other policies the controller keeps boots that no new event calls into question.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return one decision for each job of the snapshot, in the order of the jobs' ids.

        All targets together are within the limits, each is within its job's bounds, and no target
        uses more of an unavailable offer than is held. A reason or a note reports anything
        unknown, unsolved or unavailable; nothing is raised.
        """
        ...
