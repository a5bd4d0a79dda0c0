"""The product's policy: marginal goodput per dollar of each job, and surplus for shared limits.

See docs/economics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Decision, Plan, ReasonCode
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.choice.demands import ChoiceReason
from autoscaler.economics.explanation.facts import Facts
from autoscaler.economics.explanation.reasons import Contest, LimitUsage, action_of, reason
from autoscaler.economics.supply.caches import PlanningCache, PlanningCaches
from autoscaler.economics.supply.supply import SECONDS_PER_HOUR, Supply, supply_of
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal.budgets import steering
from autoscaler.policies.marginal.fleet import FleetPlan, MarginalParameters, plan_fleet
from autoscaler.policies.marginal.rivals import Contests
from autoscaler.policies.marginal.studies import (
    StudyPart,
    StudyWork,
    studies_of,
    targets,
    together,
)
from autoscaler.policies.marginal.study_division import KEEPING_FIGURE, StudyMarket, contested
from autoscaler.policies.pools.marginal import plan_pool
from autoscaler.policies.transition import releases_first

# Replan from the planned state until it no longer changes, at most so many times.
_PASSES = 4

_DEFAULTS = MarginalParameters()


class MarginalPolicy:
    """Each job's own best allocation; if limits rule these out, the greatest total surplus.

    Each object keeps intermediate results for its next plan. Plans of several objects, and plans
    of one object in several threads, share none.
    """

    plans_studies = True
    weighs_boots = True

    def __init__(self, parameters: MarginalParameters = _DEFAULTS) -> None:
        self._parameters = parameters
        self._caches = PlanningCaches()

    def plan(self, snapshot: Snapshot) -> Plan:
        """Plan all jobs and studies of the snapshot; see `Policy.plan`."""
        if any(offer.shared for offer in snapshot.offers):
            return plan_pool(snapshot)
        with self._caches.lent() as cache:
            supply = self._supply_of(snapshot, cache)
            steered = steering(snapshot, supply, self._parameters)
            snapshot = replace(snapshot, jobs=steered.jobs)
            works = studies_of(snapshot, supply)
            if works:
                return steered.applied(self._plan_studies_and_jobs(snapshot, works, supply))
            jobs = sorted(snapshot.jobs, key=lambda job: job.id)
            return steered.applied(self._plan_jobs(jobs, supply))

    def _supply_of(self, snapshot: Snapshot, cache: PlanningCache) -> Supply:
        """Return the supply of a snapshot, to be planned with this cache."""
        return supply_of(snapshot, cache, self._parameters.fleet_jobs)

    def _plan_jobs(self, jobs: Sequence[JobSnapshot], supply: Supply) -> Plan:
        """Return the plan of ordinary jobs, replanned until it no longer changes.

        A fleet is replanned by the next plan.
        """
        first = plan_fleet(jobs, supply, self._parameters)
        targets = first.targets
        is_settled = all(targets[job.id] == job.held for job in jobs)
        if first.division is None or is_settled or supply.terms.is_fleet:
            return _assembled_plan(jobs, first, supply)
        for _ in range(_PASSES):
            moved = [_with_target(job, targets[job.id]) for job in jobs]
            following = plan_fleet(moved, supply, self._parameters).targets
            if following == targets:
                break
            targets = following
        return _assembled_plan(jobs, first.with_targets(targets), supply)

    def _plan_studies_and_jobs(
        self, snapshot: Snapshot, works: Sequence[StudyWork], supply: Supply
    ) -> Plan:
        """Plan each study in turn against the ordinary jobs, then the jobs in the limits left."""
        trials = {job.id for work in works for job in (*work.jobs, *work.set_aside)}
        others = sorted(
            (job for job in snapshot.jobs if job.id not in trials), key=lambda job: job.id
        )

        def plan_rest(taken: FloatArray) -> Plan:
            """Return the plan of the ordinary jobs beside `taken` uses of the limits, (R,)."""
            limits = tuple(
                replace(limit, maximum=max(limit.maximum - float(used), 0.0))
                for limit, used in zip(snapshot.limits, taken, strict=True)
            )
            beside = self._supply_of(replace(snapshot, limits=limits), supply.cache)
            return self._plan_jobs(others, beside)

        parts: list[StudyPart] = []
        for index, work in enumerate(works):
            later = [
                job
                for later_work in works[index + 1 :]
                for job in (*later_work.jobs, *later_work.set_aside)
            ]
            taken = supply.uses(targets(parts).values()) + supply.uses(job.held for job in later)
            market = StudyMarket(
                supply,
                taken,
                others,
                plan_rest,
                self._parameters.most_times_dearest,
                self._parameters.fleet_jobs,
            )
            parts.append(contested(work, market))
        return together(plan_rest(supply.uses(targets(parts).values())), parts, supply)


def _with_target(job: JobSnapshot, target: Allocation | None) -> JobSnapshot:
    """Return the job as if its target were already its allocation."""
    return job if target == job.held else replace(job, held=target, trained=target)


def _assembled_plan(jobs: Sequence[JobSnapshot], planned: FleetPlan, supply: Supply) -> Plan:
    """Return the plan with a decision, reason and figures for each job."""
    around = LimitUsage(supply, supply.uses(planned.targets.values()))
    contests, division = None, planned.division
    prices = np.zeros(len(supply.limits)) if division is None else division.prices
    if division is not None:
        contests = Contests(planned.standings(), supply.limits, prices)
    ids = [job.id for job in jobs]
    changes = [(job.held, planned.targets[job.id]) for job in jobs]
    must_release_first = dict(zip(ids, releases_first(changes, supply), strict=True))
    by_id, bids, keeping = {job.id: job for job in jobs}, planned.bids, planned.keeping
    decisions = {}
    for facts in planned.facts():
        job = facts.job.id
        contest = None if contests is None else _with_minimum(contests.over(job), by_id)
        figures = {
            "bid_usd_per_hour": bids[job] * SECONDS_PER_HOUR,
            "weight": facts.job.weight,
        }
        if keeping.get(job, 0.0) > 0:
            figures[KEEPING_FIGURE] = keeping[job] * SECONDS_PER_HOUR
        decisions[job] = _decision(facts, figures, around, contest, must_release_first[job])
    trouble = None if division is None else division.trouble
    return Plan(
        decisions=tuple(decisions[job] for job in ids),
        shadow_prices={
            limit.name: float(price) for limit, price in zip(supply.limits, prices, strict=True)
        },
        gap_usd_per_second=0.0 if division is None else division.gap,
        notes=() if trouble is None else (f"planned greedily: {trouble}",),
    )


def _with_minimum(contest: Contest | None, jobs: Mapping[str, JobSnapshot]) -> Contest | None:
    """Return the contest, with the rival's minimum where that lets it win at a lower bid.

    Applies where the rival gets more than it holds to reach its minimum of several instances.
    """
    if contest is None or contest.rival is None or not contest.took_it:
        return contest
    rival = jobs[contest.rival]
    held, minimum = 0 if rival.held is None else rival.held.instances, rival.instances.minimum
    is_higher_bid = contest.rival_usd_per_second >= contest.own_usd_per_second
    if is_higher_bid or held >= minimum or minimum == 1:
        return contest
    return replace(contest, rival_minimum=minimum)


def _decision(
    facts: Facts,
    figures: dict[str, float],
    around: LimitUsage,
    contest: Contest | None,
    release_first: bool,
) -> Decision:
    """Return the decision that gives a job the target of its facts.

    `figures` are those of the job's bid; those of a change are added.
    """
    job, target = facts.job, facts.target
    figures |= facts.requirement.outlook.figures()
    change = None if facts.given is None else facts.given.change
    if change is not None:
        figures |= change.figures()
        is_move = job.held is not None and target is not None and job.held.offer != target.offer
        release_first = release_first or (is_move and not change.trains_during_boot)
    return Decision(
        job=job.id,
        action=action_of(job.held, target, stops=facts.why is ChoiceReason.STOPS),
        current=job.held,
        target=target,
        reason=reason(facts, around, contest),
        figures=figures,
        release_first=release_first,
        ground=facts.why.value if contest is None else ReasonCode.OUTBID,
    )
