"""Trials that wait at a barrier hold nothing, whatever a policy makes of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.base import Policy

GROUND = "at a barrier"


class BesideBarriers:
    """A policy, which does not see the trials that wait at a barrier unless it plans studies.

    On machines that jobs share none does.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._plans_studies: bool = getattr(policy, "plans_studies", False)
        self.weighs_boots: bool = getattr(policy, "weighs_boots", False)

    def plan(self, snapshot: Snapshot) -> Plan:
        """As the policy does; trials at their barriers give back what they hold."""
        is_shared = any(offer.shared for offer in snapshot.offers)
        waiting = frozenset(_waiting(snapshot))
        if not waiting or (self._plans_studies and not is_shared):
            return self._policy.plan(snapshot)
        others = tuple(job for job in snapshot.jobs if job.id not in waiting)
        plan = self._policy.plan(replace(snapshot, jobs=others))
        given_back = (_wait(job) for job in snapshot.jobs if job.id in waiting)
        decisions = sorted((*plan.decisions, *given_back), key=lambda each: each.job)
        return replace(plan, decisions=tuple(decisions))


def _waiting(snapshot: Snapshot) -> Iterator[str]:
    """Trials that have come to their rungs, and lose nothing by giving back what they hold."""
    for study in snapshot.studies:
        for trial in study.trials if study.terms.synchronous else ():
            if trial.stands.waits and trial.stands.pauses:
                yield trial.stands.job


def _wait(job: JobSnapshot) -> Decision:
    return Decision(
        job=job.id,
        action=Action.WAIT if job.held is None else Action.SHRINK,
        current=job.held,
        target=None,
        reason=f"{job.id} waits for the other trials of its rung",
        ground=GROUND,
    )
