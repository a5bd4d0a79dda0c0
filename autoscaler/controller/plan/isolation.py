"""Planning that continues without the jobs that can't be planned."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.controller.errors import error_text
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import CastorError
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import limits_beside
from autoscaler.domain.plan import Action, Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.policies.base import Policy
from autoscaler.policies.wrappers.barriers import BesideBarriers
from autoscaler.policies.wrappers.boots import FinishesBoots
from autoscaler.policies.wrappers.budgets import WithinBudgets
from autoscaler.policies.wrappers.gangs import InWholeGangs

_log = logging.getLogger(__name__)

# Seconds for which an unplanned job keeps its last decision; after that it keeps its minimum.
LEFT_OUT_GRACE_SECONDS = 600.0
_FIRST_RETRY_SECONDS = 60.0
_LONGEST_RETRY_SECONDS = 600.0


class PlanningFailed(CastorError):
    """Error of a policy that no single job causes."""


@dataclass(frozen=True, slots=True)
class Unplanned:
    """A job that planning leaves out, since `since_seconds`.

    Planning includes the job again at `retry_seconds`, or when its objective or bounds differ from
    `terms`.
    """

    reason: str
    since_seconds: float
    retry_seconds: float
    terms: object = None


class IsolatedPlanning:
    """A policy, and the jobs for which it raises an error or no snapshot can be taken."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._unplanned: dict[str, Unplanned] = {}
        self._without_snapshot: frozenset[str] = frozenset()

    @property
    def unplanned(self) -> Mapping[str, Unplanned]:
        """The jobs that are left out now, by id."""
        return self._unplanned

    def keep(self, jobs: Collection[str]) -> None:
        """Forget all other jobs."""
        self._unplanned = {job: entry for job, entry in self._unplanned.items() if job in jobs}

    def leave_out(self, reasons: Mapping[str, str], now_seconds: float) -> None:
        """Record the jobs of which no snapshot can be taken now, each with the reason."""
        recovered = self._without_snapshot - reasons.keys()
        kept = {job: entry for job, entry in self._unplanned.items() if job not in recovered}
        self._unplanned = kept | {
            job: replace(self._entry(job, reason, now_seconds), retry_seconds=now_seconds)
            for job, reason in reasons.items()
        }
        self._without_snapshot = frozenset(reasons)

    def plan(self, snapshot: Snapshot) -> tuple[Plan, Snapshot]:
        """Return a plan for the jobs that can be planned, and the snapshot used for it.

        If the policy raises, the responsible jobs are found by bisection and left out. The trials
        of a study are left out together.

        Raises:
            PlanningFailed: the policy raises, and no single job or study is responsible.
        """
        now_seconds = snapshot.now_seconds
        left_out = {job.id for job in snapshot.jobs if self._is_left_out(job, now_seconds)}
        tried = without_jobs(snapshot, left_out)
        try:
            plan = self._policy.plan(tried)
        except Exception as error:  # policies may raise any error
            _log.exception("planning failed")
            failed = self._failing(tried, error)
            self._record(tried, failed)
            tried = without_jobs(tried, failed.keys())
            plan = self._plan_of_rest(tried)
        planned = {job.id for job in tried.jobs}
        self._unplanned = {
            job: entry for job, entry in self._unplanned.items() if job not in planned
        }
        return plan, tried

    def _plan_of_rest(self, snapshot: Snapshot) -> Plan:
        try:
            return self._policy.plan(snapshot)
        except Exception as error:  # policies may raise any error
            raise PlanningFailed(error_text(error)) from error

    def _is_left_out(self, job: JobSnapshot, now_seconds: float) -> bool:
        entry = self._unplanned.get(job.id)
        return (
            entry is not None and now_seconds < entry.retry_seconds and entry.terms == _terms(job)
        )

    def _failing(self, snapshot: Snapshot, error: Exception) -> dict[str, str]:
        """Return the ids of the jobs for which the policy raises, each with its error."""
        units: dict[str, list[str]] = {}
        for job in snapshot.jobs:
            units.setdefault(f"study {job.study}" if job.study else job.id, []).append(job.id)
        errors = self._bisect(snapshot, tuple(units.values()), error) if units else {}
        if not errors:
            raise PlanningFailed(error_text(error)) from error
        return errors

    def _bisect(
        self, snapshot: Snapshot, units: Sequence[Sequence[str]], error: Exception
    ) -> dict[str, str]:
        """Return the jobs of the units that fail alone; `error` is that of all units together."""
        if len(units) == 1:
            return dict.fromkeys(units[0], error_text(error))
        failing: dict[str, str] = {}
        middle = len(units) // 2
        for half in (units[:middle], units[middle:]):
            kept = {job for unit in half for job in unit}
            others = {job.id for job in snapshot.jobs} - kept
            try:
                self._policy.plan(without_jobs(snapshot, others))
            except Exception as error_of_half:  # policies may raise any error
                failing |= self._bisect(snapshot, half, error_of_half)
        return failing

    def _record(self, snapshot: Snapshot, failed: Mapping[str, str]) -> None:
        for job in snapshot.jobs:
            if job.id in failed:
                entry = self._entry(job.id, failed[job.id], snapshot.now_seconds)
                self._unplanned = self._unplanned | {job.id: replace(entry, terms=_terms(job))}

    def _entry(self, job: str, reason: str, now_seconds: float) -> Unplanned:
        """Return the entry of a job that fails now; each further failure doubles the back-off."""
        before = self._unplanned.get(job)
        since_seconds = now_seconds if before is None else before.since_seconds
        wait_seconds = max(now_seconds - since_seconds, _FIRST_RETRY_SECONDS)
        retry_seconds = now_seconds + min(wait_seconds, _LONGEST_RETRY_SECONDS)
        return Unplanned(reason, since_seconds, retry_seconds)


def planning_by(policy: Policy) -> IsolatedPlanning:
    """Return planning by a policy, within the rules that hold for every policy."""
    return IsolatedPlanning(WithinBudgets(InWholeGangs(FinishesBoots(BesideBarriers(policy)))))


def minimum_decision(
    job: JobRecord, held: Allocation | None, unplanned: Unplanned, now_seconds: float
) -> Decision:
    """Return the decision for a job that was left out for longer than `LEFT_OUT_GRACE_SECONDS`.

    The job keeps the minimum of its bounds, and never more than it holds.
    """
    minutes = (now_seconds - unplanned.since_seconds) / 60
    problem = f"{job.id} could not be planned for {minutes:.0f} min: {unplanned.reason}"
    if held is None:
        reason = f"{problem}; it gets no instance until this is fixed"
        return Decision(job.id, Action.WAIT, None, None, reason, ground=ReasonCode.UNPLANNED)
    count = min(held.instances, job.spec.instances.minimum)
    action = Action.HOLD if count == held.instances else Action.SHRINK
    reason = f"{problem}; it keeps its minimum, {count} of {held.offer}, until this is fixed"
    target = replace(held, instances=count)
    return Decision(job.id, action, held, target, reason, ground=ReasonCode.UNPLANNED)


def without_jobs(snapshot: Snapshot, jobs: Collection[str]) -> Snapshot:
    """Return the snapshot without some jobs; what they hold still counts against the limits."""
    if not jobs:
        return snapshot
    removed = [job for job in snapshot.jobs if job.id in jobs]
    held = Counter[str]()
    for job in removed:
        if job.held is not None:
            held[job.held.offer] += job.held.instances
    studies = {job.study for job in removed}
    return replace(
        snapshot,
        limits=limits_beside(snapshot.limits, snapshot.offers, held),
        jobs=tuple(job for job in snapshot.jobs if job.id not in jobs),
        studies=tuple(study for study in snapshot.studies if study.name not in studies),
    )


def _terms(job: JobSnapshot) -> object:
    return job.objective, job.instances, job.batch
