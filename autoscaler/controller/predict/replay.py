"""Decisions of another policy for each snapshot of a run in the journal.

Each snapshot is the run's own: effects of the other policy's decisions are not simulated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import SpecError, StoreError
from autoscaler.domain.plan import Decision
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.candidates import candidates
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, Supply, supply_of
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy, require_ground
from autoscaler.store.repositories.journal import JournalEntry
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class Choice:
    """Content of one decision; `goodput` in useful examples per second, None if unknown.

    `holding` is the allocation as text.
    """

    action: str
    holding: str
    reason: str
    usd_per_hour: float
    goodput: float | None


@dataclass(frozen=True, slots=True)
class Moment:
    """A decision of the run, and the other policy's decision for the same snapshot."""

    at_seconds: float
    job: str
    decided: Choice
    would: Choice

    @property
    def is_same(self) -> bool:
        """Whether both decisions give the job the same allocation."""
        return self.decided.holding == self.would.holding


@dataclass(frozen=True, slots=True)
class Replay:
    """All moments in order of time; `lost` counts decisions without a kept snapshot."""

    policy: str
    moments: tuple[Moment, ...]
    lost: int


def replay(store: Store, policy: str, job: str | None = None, last: int | None = None) -> Replay:
    """Return the decisions of a policy for every snapshot of the journal.

    Args:
        store: the store of the run.
        policy: the name of the other policy.
        job: the id of the job to which the replay is limited; None for all.
        last: the number of latest decisions to replay; None for all.

    Raises:
        SpecError: the policy is unknown, or can't plan for the offers of the run.
    """
    planner = create_policy(policy)
    entries = store.journal.decisions(job, sys.maxsize if last is None else last)[::-1]
    moments: list[Moment] = []
    lost = 0
    for plan, plan_entries in _by_plan(entries):
        try:
            snapshot = store.journal.inputs(plan)
        except StoreError:
            lost += len(plan_entries)
            continue
        require_kept_ground(policy, planner, snapshot)
        decisions = {decision.job: decision for decision in planner.plan(snapshot).decisions}
        moments.extend(_moments(snapshot, plan_entries, decisions))
    return Replay(policy, tuple(moments), lost)


def require_kept_ground(name: str, planner: Policy, snapshot: Snapshot) -> None:
    """Check that a policy can plan for the offers of a recorded run.

    Raises:
        SpecError: it plans for another kind of supply.
    """
    is_pool = any(offer.shared for offer in snapshot.offers)
    try:
        require_ground(name, planner, is_pool=is_pool)
    except SpecError:
        offered = "machines of a pool" if is_pool else "instances to buy"
        raise SpecError(f"{name} can't plan for this run, which had {offered}", "policy") from None


def _by_plan(
    entries: Sequence[JournalEntry],
) -> Iterator[tuple[JournalEntry, list[JournalEntry]]]:
    plans: dict[int, list[JournalEntry]] = {}
    for entry in entries:
        plans.setdefault(entry.plan, []).append(entry)
    for plan_entries in plans.values():
        yield plan_entries[0], plan_entries


def _moments(
    snapshot: Snapshot, plan_entries: Sequence[JournalEntry], decisions: dict[str, Decision]
) -> Iterator[Moment]:
    jobs = {job.id: job for job in snapshot.jobs}
    supply = supply_of(snapshot)
    for entry in plan_entries:
        job = entry.decision.job
        if job in jobs:
            yield Moment(
                at_seconds=entry.at_seconds,
                job=job,
                decided=_choice(jobs[job], supply, entry.decision),
                would=_choice(jobs[job], supply, decisions[job]),
            )


def _choice(job: JobSnapshot, supply: Supply, decision: Decision) -> Choice:
    target = decision.target
    holding = decision.placement or target
    return Choice(
        action=decision.action.value,
        holding="nothing" if holding is None else str(holding),
        reason=decision.reason,
        usd_per_hour=_usd_per_hour(supply, target),
        goodput=_goodput(job, supply, target),
    )


def _usd_per_hour(supply: Supply, target: Allocation | None) -> float:
    offer = None if target is None else supply.offer(target.offer)
    if target is None or offer is None:
        return 0.0
    return offer.usd_per_second * target.instances * SECONDS_PER_HOUR


def _goodput(job: JobSnapshot, supply: Supply, target: Allocation | None) -> float | None:
    if target is None:
        return 0.0 if job.placement is None else None
    job_candidates = candidates(job, supply)
    index = job_candidates.index(target)
    return None if index is None else float(job_candidates.rate[index])
