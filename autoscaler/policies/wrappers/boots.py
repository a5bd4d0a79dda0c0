"""Policy wrapper that lets boots under way finish unless a new event justifies a change.

Each policy replans from the present state, and most policies give no credit for an instance that
is still booting. Where two jobs value an instance equally, successive plans could alternate
between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from autoscaler.domain.allocation import Allocation, Placement
from autoscaler.domain.plan import Action, Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.base import Policy

# Reasons for which a trial releases its allocation on behalf of its study.
_GIVEN_BACK: Final = frozenset(
    (ReasonCode.AT_BARRIER, ReasonCode.BEYOND_BUDGET, ReasonCode.BEYOND_DEADLINE)
)
# Relative tolerance when uses are compared with a limit.
_TOLERANCE = 1e-9

_Held = tuple[Allocation | None, Placement | None]


class FinishesBoots:
    """Wrapper by which undisturbed jobs (`Snapshot.undisturbed`) keep the instances they boot.

    A policy with `weighs_boots = True` prices the loss of a boot itself; its plans for bought
    instances are not changed.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._weighs_boots: bool = getattr(policy, "weighs_boots", False)
        self.plans_studies: bool = getattr(policy, "plans_studies", False)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan, with undisturbed jobs kept at their present allocations."""
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
    """Return the plan with the `kept` jobs unchanged and the others as far as room is left.

    A job whose target does not fit beside them keeps its present allocation. A job that was to
    release room for a target that no longer starts keeps its allocation too.
    """
    free = _FreeCapacity(snapshot)
    decided = {job: _held(jobs[job]) for job in sorted(kept)}
    free.take(decided.values())
    others = [decision for decision in plan.decisions if decision.job not in kept]
    stays_within = [
        free.is_within(_target(decision), _held(jobs[decision.job])) for decision in others
    ]
    in_turn = sorted(zip(stays_within, others, strict=True), key=lambda pair: not pair[0])
    for _, decision in in_turn:
        choices = (_target(decision), _held(jobs[decision.job]), (None, None))
        decided[decision.job] = free.first_that_fits(choices)
    for _, decision in in_turn:
        held = _held(jobs[decision.job])
        if decision.action is not Action.STOP and free.is_within(decided[decision.job], held):
            decided[decision.job] = free.exchange(decided[decision.job], held)
    decisions = (
        _decision(decision, jobs[decision.job], decided[decision.job])
        for decision in plan.decisions
    )
    return replace(plan, decisions=tuple(decisions))


class _FreeCapacity:
    """Unused part of the limits and of the machines of a pool."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._offers = {offer.id: offer for offer in snapshot.offers}
        self._limits = snapshot.limits
        self._most: dict[str, float] = {limit.name: limit.maximum for limit in snapshot.limits}
        self._most |= {
            f"machine {offer.id}": offer.devices for offer in snapshot.offers if offer.shared
        }
        self._used: Counter[str] = Counter()

    def take(self, holdings: Iterable[_Held]) -> None:
        """Count these allocations and placements as used."""
        for held in holdings:
            self._used.update(self._uses(held))

    def first_that_fits(self, choices: Iterable[_Held]) -> _Held:
        """Take and return the first choice that fits; return (None, None) where none does."""
        for choice in choices:
            if self._has_room(choice):
                self.take([choice])
                return choice
        return None, None

    def exchange(self, given: _Held, better: _Held) -> _Held:
        """Replace `given` by `better` if that fits; return the one that is taken."""
        self._used.subtract(self._uses(given))
        return self.first_that_fits((better, given))

    def is_within(self, target: _Held, held: _Held) -> bool:
        """Return whether `target` uses no more than `held` of every limit and machine."""
        most = self._uses(held)
        return all(use <= most[name] for name, use in self._uses(target).items())

    def _has_room(self, target: _Held) -> bool:
        return all(
            self._used[name] + use <= self._most[name] * (1 + _TOLERANCE) + _TOLERANCE
            for name, use in self._uses(target).items()
        )

    def _uses(self, held: _Held) -> Counter[str]:
        """Return the use of each limit and each machine, by name."""
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
    """Return the decision that gives the job `given`; the reason names the boot if it differs."""
    if given == _target(decision):
        is_new = given not in ((None, None), _held(job))
        return replace(decision, release_first=decision.release_first or is_new)
    allocation, placement = given
    action = Action.WAIT if given == (None, None) else Action.HOLD
    outcome = f"{action.value} {job.id}" + (
        "" if action is Action.WAIT else f" at {allocation or placement}"
    )
    return Decision(
        job=job.id,
        action=action,
        current=job.held,
        target=allocation,
        reason=f"{outcome}: a boot is under way, and no event since then justifies a change",
        placement=placement,
        ground=ReasonCode.BOOTING,
    )


def _target(decision: Decision) -> _Held:
    return decision.target, decision.placement


def _held(job: JobSnapshot) -> _Held:
    return job.held, job.placement
