"""The product's policy: marginal goodput per dollar of each job, and surplus for shared limits.

See docs/economics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.choice.demands import ChoiceReason, Demand, demand
from autoscaler.economics.choice.surplus import keeping_usd_per_second
from autoscaler.economics.explanation.facts import Facts, facts_of
from autoscaler.economics.explanation.reasons import Contest, LimitUsage, action_of, reason
from autoscaler.economics.pricing.objectives import MOST_TIMES_DEAREST
from autoscaler.economics.supply.caches import PlanningCache, PlanningCaches
from autoscaler.economics.supply.supply import (
    FLEET_JOBS,
    SECONDS_PER_HOUR,
    Supply,
    supply_of,
)
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.marginal.contests import CompetingJobs, Contests
from autoscaler.policies.marginal.fleet import plan_fleet
from autoscaler.policies.marginal.knapsack import SolverLimits
from autoscaler.policies.marginal.sharing import Sharing, share_out
from autoscaler.policies.marginal.studies import (
    StudyPart,
    StudyWork,
    studies_of,
    targets,
    together,
)
from autoscaler.policies.marginal.study_contests import KEEPING_FIGURE, StudyMarket, contested
from autoscaler.policies.pools.marginal import plan_pool
from autoscaler.policies.transition import releases_first

# Replan from the planned state until it no longer changes, at most so many times.
_PASSES = 4


@dataclass(frozen=True, slots=True)
class MarginalParameters:
    """Parameters of the planning.

    Attributes:
        effort: bounds on the search for the best plan of many jobs.
        most_times_dearest: highest value of time of any job, as a multiple of the price of its
            largest allocation.
        fleet_jobs: number of jobs above which they are planned together as a fleet.
    """

    effort: SolverLimits = field(default_factory=SolverLimits)
    most_times_dearest: float = MOST_TIMES_DEAREST
    fleet_jobs: int = FLEET_JOBS


_DEFAULTS = MarginalParameters()


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """Target of every job by id; `sharing` is None where the limits allow all wishes."""

    demands: Sequence[Demand]
    targets: Mapping[str, Allocation | None]
    sharing: Sharing | None


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
            works = studies_of(snapshot, supply)
            if works:
                return self._plan_studies_and_jobs(snapshot, works, supply)
            return self._plan_jobs(sorted(snapshot.jobs, key=lambda job: job.id), supply)

    def _supply_of(self, snapshot: Snapshot, cache: PlanningCache) -> Supply:
        """Return the supply of a snapshot, to be planned with this cache."""
        return supply_of(snapshot, cache, self._parameters.fleet_jobs)

    def _plan_jobs(self, jobs: Sequence[JobSnapshot], supply: Supply) -> Plan:
        """Return the plan of ordinary jobs."""
        planner = self._plan_large_fleet if supply.terms.is_fleet else self._plan_few_jobs
        return planner(jobs, supply)

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

    def _plan_few_jobs(self, jobs: Sequence[JobSnapshot], supply: Supply) -> Plan:
        """Return the plan of jobs that are priced one by one."""
        outcome = self._fixed_point(jobs, supply)
        targets, shared = outcome.targets, None
        if outcome.sharing is not None:
            solution = outcome.sharing.solution
            shared = _SharedLimits(
                outcome.sharing.standings(), solution.shadow_prices, solution.gap, solution.trouble
            )
        return _assembled_plan(
            jobs,
            _Targets(
                targets=targets,
                bids={choice.job.id: choice.bid for choice in outcome.demands},
                keeping={choice.job.id: _keeping_value(choice) for choice in outcome.demands},
                facts=(facts_of(choice, targets[choice.job.id]) for choice in outcome.demands),
            ),
            supply,
            shared,
        )

    def _plan_large_fleet(self, jobs: Sequence[JobSnapshot], supply: Supply) -> Plan:
        """Return the plan of jobs that are priced together in arrays."""
        fleet = plan_fleet(jobs, supply, self._parameters.most_times_dearest)
        shared, division = None, fleet.division
        if fleet.standings is not None and division is not None:
            shared = _SharedLimits(
                fleet.standings, division.prices, division.gap, division.trouble
            )
        return _assembled_plan(
            jobs, _Targets(fleet.targets, fleet.bids, fleet.facts), supply, shared
        )

    def _fixed_point(self, jobs: Sequence[JobSnapshot], supply: Supply) -> _Outcome:
        """Return the outcome, replanned from its own targets until these no longer change."""
        first = self._outcome(jobs, supply)
        if first.sharing is None:
            return first
        targets = first.targets
        if all(targets[job.id] == job.held for job in jobs):
            return first
        for _ in range(_PASSES):
            moved = [_with_target(job, targets[job.id]) for job in jobs]
            following = self._outcome(moved, supply).targets
            if following == targets:
                break
            targets = following
        return _Outcome(first.demands, targets, replace(first.sharing, targets=targets))

    def _outcome(self, jobs: Sequence[JobSnapshot], supply: Supply) -> _Outcome:
        """Return the wish and the target of each job for the snapshot as it is."""
        room = supply.maximum - supply.uses(job.held for job in jobs)
        most_times = self._parameters.most_times_dearest
        demands = [demand(job, supply, room, most_times) for job in jobs]
        targets = {choice.job.id: _wished_target(choice) for choice in demands}
        if supply.bears(supply.uses(targets.values())):
            return _Outcome(demands, targets, None)
        sharing = share_out(demands, supply, self._parameters.effort)
        return _Outcome(demands, sharing.targets, sharing)


def _keeping_value(choice: Demand) -> float:
    """Return the job's saving by keeping its allocation, $ per second."""
    return keeping_usd_per_second(choice.at, choice.bid, choice.work)


def _wished_target(choice: Demand) -> Allocation | None:
    """Return the allocation that the job would have by itself; None for nothing."""
    if choice.why is ChoiceReason.HOLDS_UNKNOWN:
        return choice.job.held
    return None if choice.target is None else choice.at.candidates.allocation(choice.target)


def _with_target(job: JobSnapshot, target: Allocation | None) -> JobSnapshot:
    """Return the job as if its target were already its allocation."""
    return job if target == job.held else replace(job, held=target, trained=target)


@dataclass(frozen=True, slots=True, eq=False)
class _SharedLimits:
    """Result of sharing limits that do not allow all wishes.

    Attributes:
        standings: held, given and wished allocations of the competing jobs.
        prices: price of a unit of each limit, $ per second, (R,).
        gap: upper bound on the distance to the best value, $ per second.
        trouble: error of the solver; None if it succeeded.
    """

    standings: CompetingJobs
    prices: FloatArray
    gap: float
    trouble: str | None


@dataclass(frozen=True, slots=True, eq=False)
class _Targets:
    """Targets and bids by job id, and the facts of each reason in any order.

    Attributes:
        targets: allocation of each job; None for nothing.
        bids: value of time of each job, $ per second.
        facts: facts of each job's reason, once each.
        keeping: each job's saving by keeping its allocation, $ per second; empty for fleets.
    """

    targets: Mapping[str, Allocation | None]
    bids: Mapping[str, float]
    facts: Iterable[Facts]
    keeping: Mapping[str, float] = field(default_factory=dict)


def _assembled_plan(
    jobs: Sequence[JobSnapshot], given: _Targets, supply: Supply, shared: _SharedLimits | None
) -> Plan:
    """Return the plan with a decision, reason and figures for each job."""
    around = LimitUsage(supply, supply.uses(given.targets.values()))
    contests, prices = None, np.zeros(len(supply.limits))
    if shared is not None:
        prices = shared.prices
        contests = Contests(shared.standings, supply.limits, prices)
    ids = [job.id for job in jobs]
    changes = [(job.held, given.targets[job.id]) for job in jobs]
    must_release_first = dict(zip(ids, releases_first(changes, supply), strict=True))
    by_id = {job.id: job for job in jobs}
    decisions = {}
    for facts in given.facts:
        job = facts.job.id
        contest = None if contests is None else _with_minimum(contests.over(job), by_id)
        decision = _decision(facts, given.bids[job], around, contest, must_release_first[job])
        saved_usd_per_hour = given.keeping.get(job, 0.0) * SECONDS_PER_HOUR
        figures = {
            **decision.figures,
            **({KEEPING_FIGURE: saved_usd_per_hour} if saved_usd_per_hour > 0 else {}),
        }
        decisions[job] = replace(decision, figures=figures)
    trouble = None if shared is None else shared.trouble
    return Plan(
        decisions=tuple(decisions[job] for job in ids),
        shadow_prices={
            limit.name: float(price) for limit, price in zip(supply.limits, prices, strict=True)
        },
        gap_usd_per_second=0.0 if shared is None else shared.gap,
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
    facts: Facts, bid: float, around: LimitUsage, contest: Contest | None, release_first: bool
) -> Decision:
    """Return the decision that gives a job the target of its facts."""
    job, target = facts.job, facts.target
    figures = {"bid_usd_per_hour": bid * SECONDS_PER_HOUR, "weight": job.weight}
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
        ground=facts.why.name.lower().replace("_", " ") if contest is None else "outbid",
    )
