"""Policy wrapper that takes back the instances of trials that wait at a rung barrier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autoscaler.domain.plan import Action, Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.base import Policy


class BesideBarriers:
    """Wrapper that hides trials at a barrier from a policy that does not plan studies.

    On a shared pool these trials are hidden from every policy.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._plans_studies: bool = getattr(policy, "plans_studies", False)
        self.weighs_boots: bool = getattr(policy, "weighs_boots", False)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan; trials that wait at barriers release their allocations."""
        is_shared = any(offer.shared for offer in snapshot.offers)
        waiting = frozenset(_trials_at_barriers(snapshot))
        if not waiting or (self._plans_studies and not is_shared):
            return self._policy.plan(snapshot)
        others = tuple(job for job in snapshot.jobs if job.id not in waiting)
        plan = self._policy.plan(replace(snapshot, jobs=others))
        releases = (_release(job) for job in snapshot.jobs if job.id in waiting)
        decisions = sorted((*plan.decisions, *releases), key=lambda decision: decision.job)
        return replace(plan, decisions=tuple(decisions))


def _trials_at_barriers(snapshot: Snapshot) -> Iterator[str]:
    """Yield the job ids of synchronous trials that wait at their rung and can pause."""
    for study in snapshot.studies:
        for trial in study.trials if study.terms.synchronous else ():
            if trial.stands.waits and trial.stands.pauses:
                yield trial.stands.job


def _release(job: JobSnapshot) -> Decision:
    """Return the decision by which a trial at a barrier holds nothing."""
    return Decision(
        job=job.id,
        action=Action.WAIT if job.held is None else Action.SHRINK,
        current=job.held,
        target=None,
        reason=f"{job.id} waits for the other trials of its rung",
        ground=ReasonCode.AT_BARRIER,
    )
