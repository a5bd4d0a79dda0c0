"""Boots under way are finished, whatever a policy would rather do without a new cause.

A policy plans anew from how things stand, and most policies count an instance that still starts
for nothing. Where two jobs are worth the same, each plan may then give the instance to the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from autoscaler.domain.allocation import Allocation, Placement
from autoscaler.domain.plan import BEYOND_BUDGET, BEYOND_DEADLINE, Action, Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.barriers import GROUND as AT_A_BARRIER
from autoscaler.policies.base import Policy

GROUND: Final = "a boot is under way"
# On these grounds a trial gives back what it holds for its study's sake.
_GIVEN_BACK: Final = frozenset((AT_A_BARRIER, BEYOND_BUDGET, BEYOND_DEADLINE))
# Sums of prices are good to this share of a limit.
_TOLERANCE = 1e-9

_Held = tuple[Allocation | None, Placement | None]


class FinishesBoots:
    """A policy whose plans leave undisturbed jobs (`Snapshot.undisturbed`) what they start.

    A policy that declares `weighs_boots = True` compares the cost of a boot with what replaces it;
    its plans for bought instances stay as they are.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._weighs_boots: bool = getattr(policy, "weighs_boots", False)
        self.plans_studies: bool = getattr(policy, "plans_studies", False)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the plan of the policy; what it would take from a boot stays where it is."""
        plan = self._policy.plan(snapshot)
        is_shared = any(offer.shared for offer in snapshot.offers)
        if self._weighs_boots and not is_shared:
            return plan
        jobs = {job.id: job for job in snapshot.jobs}
        kept = {
            decision.job
            for decision in plan.decisions
            if decision.job in snapshot.undisturbed
            and decision.action is not Action.STOP
            and decision.ground not in _GIVEN_BACK
            and _target(decision) != _held(jobs[decision.job])
        }
        return _with_kept(plan, snapshot, jobs, kept) if kept else plan


def _with_kept(
    plan: Plan, snapshot: Snapshot, jobs: Mapping[str, JobSnapshot], kept: set[str]
) -> Plan:
    """Return the plan with these jobs where they are, and the others as far as there is room.

    What comes has the room that is left beside them. A job that comes too late for it stays where
    it is, and so does one that made room for another that does not come.
    """
    room = _Room(snapshot)
    decided = {job: _held(jobs[job]) for job in sorted(kept)}
    room.take(decided.values())
    others = [decision for decision in plan.decisions if decision.job not in kept]
    stays_within = [room.is_within(_target(each), _held(jobs[each.job])) for each in others]
    in_turn = sorted(zip(stays_within, others, strict=True), key=lambda pair: not pair[0])
    for _, decision in in_turn:
        choices = (_target(decision), _held(jobs[decision.job]), (None, None))
        decided[decision.job] = room.first_that_fits(choices)
    for _, decision in in_turn:
        held = _held(jobs[decision.job])
        if decision.action is not Action.STOP and room.is_within(decided[decision.job], held):
            decided[decision.job] = room.exchange(decided[decision.job], held)
    decisions = (_decision(each, jobs[each.job], decided[each.job]) for each in plan.decisions)
    return replace(plan, decisions=tuple(decisions))


class _Room:
    """What the limits and the machines of a pool have left."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._offers = {offer.id: offer for offer in snapshot.offers}
        self._limits = snapshot.limits
        self._most: dict[str, float] = {limit.name: limit.maximum for limit in snapshot.limits}
        self._most |= {
            f"machine {offer.id}": offer.devices for offer in snapshot.offers if offer.shared
        }
        self._used: Counter[str] = Counter()

    def take(self, every: Iterable[_Held]) -> None:
        for held in every:
            self._used.update(self._uses(held))

    def first_that_fits(self, choices: Iterable[_Held]) -> _Held:
        """Take and return the first of these that has room; nothing where none has."""
        for choice in choices:
            if self._has_room(choice):
                self.take([choice])
                return choice
        return None, None

    def exchange(self, given: _Held, better: _Held) -> _Held:
        """Take `better` in the place of what was given, if it has room; return what is taken."""
        self._used.subtract(self._uses(given))
        return self.first_that_fits((better, given))

    def is_within(self, target: _Held, held: _Held) -> bool:
        """Return whether what is planned uses no more than what is held, of anything."""
        most = self._uses(held)
        return all(use <= most[name] for name, use in self._uses(target).items())

    def _has_room(self, target: _Held) -> bool:
        return all(
            self._used[name] + use <= self._most[name] * (1 + _TOLERANCE) + _TOLERANCE
            for name, use in self._uses(target).items()
        )

    def _uses(self, held: _Held) -> Counter[str]:
        """Return what is used of each limit and of each machine."""
        allocation, placement = held
        uses: Counter[str] = Counter()
        if placement is not None:
            uses.update({f"machine {offer}": devices for offer, devices in placement.shares})
        offer = None if allocation is None else self._offers.get(allocation.offer)
        if allocation is not None and offer is not None:
            for limit in self._limits:
                uses[limit.name] = limit.use(offer) * allocation.instances  # type: ignore[assignment]
        return uses


def _decision(decision: Decision, job: JobSnapshot, given: _Held) -> Decision:
    """Return the decision that gives the job what it gets in the end."""
    if given == _target(decision):
        is_new = given not in ((None, None), _held(job))
        return replace(decision, release_first=decision.release_first or is_new)
    allocation, placement = given
    action = Action.WAIT if given == (None, None) else Action.HOLD
    what = f"{action.value} {job.id}" + (
        "" if action is Action.WAIT else f" at {allocation or placement}"
    )
    return Decision(
        job=job.id,
        action=action,
        current=job.held,
        target=allocation,
        reason=f"{what}: {GROUND}, and nothing has happened since that is worth another",
        placement=placement,
        ground=GROUND,
    )


def _target(decision: Decision) -> _Held:
    return decision.target, decision.placement


def _held(job: JobSnapshot) -> _Held:
    return job.held, job.placement
