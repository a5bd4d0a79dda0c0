"""What another policy would have done at each moment of a run that was kept in a journal.

Not what would have followed: every moment is as the run itself made it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import SpecError, StoreError
from autoscaler.domain.plan import Decision
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.candidates import candidates
from autoscaler.economics.supply import SECONDS_PER_HOUR, Supply, supply_of
from autoscaler.policies.base import Policy
from autoscaler.policies.registry import create_policy, require_ground
from autoscaler.store.journal import JournalEntry
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class Choice:
    """What one decision comes to; `goodput` in useful examples a second, None if not known.

    `holding` is what is to be held, in words.
    """

    action: str
    holding: str
    reason: str
    usd_per_hour: float
    goodput: float | None


@dataclass(frozen=True, slots=True)
class Moment:
    """One decision of the run, and that of the other policy from the same snapshot."""

    at_seconds: float
    job: str
    decided: Choice
    would: Choice

    @property
    def is_same(self) -> bool:
        """Both have the job hold the same."""
        return self.decided.holding == self.would.holding


@dataclass(frozen=True, slots=True)
class Replay:
    """All moments in their order; of `lost` decisions the snapshot is not kept any more."""

    policy: str
    moments: tuple[Moment, ...]
    lost: int


def replay(store: Store, policy: str, job: str | None = None, last: int | None = None) -> Replay:
    """Give every snapshot of the journal to a policy.

    Args:
        store: of the run.
        policy: the name of the other policy.
        job: of this job alone.
        last: so many decisions of the run, the latest.

    Raises:
        SpecError: there is no such policy, or it does not plan for what the run had.
    """
    planner = create_policy(policy)
    entries = store.journal.decisions(job, sys.maxsize if last is None else last)[::-1]
    moments: list[Moment] = []
    lost = 0
    for plan, together in _by_plan(entries):
        try:
            snapshot = store.journal.inputs(plan)
        except StoreError:
            lost += len(together)
            continue
        _require_ground(policy, planner, snapshot)
        would = {each.job: each for each in planner.plan(snapshot).decisions}
        moments.extend(_moments(snapshot, together, would))
    return Replay(policy, tuple(moments), lost)


def _require_ground(name: str, planner: Policy, snapshot: Snapshot) -> None:
    is_pool = any(offer.shared for offer in snapshot.offers)
    try:
        require_ground(name, planner, is_pool=is_pool)
    except SpecError:
        had = "machines of a pool" if is_pool else "instances to buy"
        raise SpecError(f"{name} can't plan for this run, which had {had}", "policy") from None


def _by_plan(
    entries: Sequence[JournalEntry],
) -> Iterator[tuple[JournalEntry, list[JournalEntry]]]:
    plans: dict[int, list[JournalEntry]] = {}
    for entry in entries:
        plans.setdefault(entry.plan, []).append(entry)
    for together in plans.values():
        yield together[0], together


def _moments(
    snapshot: Snapshot, together: Sequence[JournalEntry], would: dict[str, Decision]
) -> Iterator[Moment]:
    jobs = {job.id: job for job in snapshot.jobs}
    supply = supply_of(snapshot)
    for entry in together:
        job = entry.decision.job
        if job in jobs:
            yield Moment(
                at_seconds=entry.at_seconds,
                job=job,
                decided=_choice(jobs[job], supply, entry.decision),
                would=_choice(jobs[job], supply, would[job]),
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
    every = candidates(job, supply)
    index = every.index(target)
    return None if index is None else float(every.rate[index])
