"""Policy wrapper that lets no job hold part of a gang."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.explanation.reasons import action_of
from autoscaler.policies.base import Policy


class InWholeGangs:
    """Wrapper that cuts the targets of a policy to whole gangs within the jobs' bounds.

    A policy that plans whole gangs itself is not changed.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.plans_studies: bool = getattr(policy, "plans_studies", False)
        self.weighs_boots: bool = getattr(policy, "weighs_boots", False)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan, with targets that are not whole gangs cut to whole ones."""
        plan = self._policy.plan(snapshot)
        jobs = {job.id: job for job in snapshot.jobs if job.parallelism.shard > 1}
        if not jobs:
            return plan
        decisions = tuple(
            _in_whole_gangs(decision, jobs[decision.job]) if decision.job in jobs else decision
            for decision in plan.decisions
        )
        return replace(plan, decisions=decisions)


def _in_whole_gangs(decision: Decision, job: JobSnapshot) -> Decision:
    target = decision.target
    whole = None if target is None else whole_part(target, job)
    if whole == target:
        return decision
    return replace(
        decision,
        action=action_of(job.held, whole, stops=False),
        target=whole,
        reason=f"{decision.reason}; only whole gangs of {job.parallelism.shard} devices train",
    )


def whole_part(allocation: Allocation, job: JobSnapshot) -> Allocation | None:
    """Return the largest part of an allocation in whole gangs; None if the job can't hold it."""
    gang = job.parallelism.gang_of(allocation.devices_used)
    if gang is None:
        return None
    instances = allocation.instances - allocation.instances % gang
    if instances < max(job.instances.minimum, 1):
        return None
    return replace(allocation, instances=instances)
