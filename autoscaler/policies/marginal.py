"""Each job by marginal goodput per dollar; shared limits by surplus. See docs/economics.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.facts import Facts, facts_of
from autoscaler.economics.objectives import MOST_TIMES_DEAREST
from autoscaler.economics.reasons import Contest, Surroundings, action_of, reason
from autoscaler.economics.supply import SECONDS_PER_HOUR, Supply, supply_of
from autoscaler.economics.surplus import keeping_usd_per_second
from autoscaler.economics.wishes import Why, Wish, wish
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.contests import Contests, Standings
from autoscaler.policies.marginal_fleet import plan_fleet
from autoscaler.policies.marginal_pool import plan_pool
from autoscaler.policies.marginal_studies import (
    StudyPart,
    StudyWork,
    studies_of,
    targets,
    together,
)
from autoscaler.policies.program import Effort
from autoscaler.policies.sharing import Sharing, share_out
from autoscaler.policies.study_contests import KEEPING_FIGURE, StudyMarket, contested
from autoscaler.policies.transition import releases_first

# A plan that limits bind is made again from where it leads, until that is where it leads.
_PASSES = 4


@dataclass(frozen=True, slots=True)
class MarginalParameters:
    """How the policy plans.

    Attributes:
        effort: how hard to look for the best plan of many jobs.
        most_times_dearest: the highest value of time of any job, as a multiple of the price of
            its largest allocation.
    """

    effort: Effort = field(default_factory=Effort)
    most_times_dearest: float = MOST_TIMES_DEAREST


_DEFAULTS = MarginalParameters()


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """What every job is to hold; `sharing` is None where the limits bear all wishes."""

    wishes: Sequence[Wish]
    targets: Mapping[str, Allocation | None]
    sharing: Sharing | None


class MarginalPolicy:
    """Each job's own best; where the limits do not bear them all, the most surplus in all."""

    plans_studies = True
    weighs_boots = True

    def __init__(self, parameters: MarginalParameters = _DEFAULTS) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        if any(offer.shared for offer in snapshot.offers):
            return plan_pool(snapshot)
        supply = supply_of(snapshot)
        works = studies_of(snapshot, supply)
        if works:
            return self._with_studies(snapshot, works, supply)
        return self._of_jobs(sorted(snapshot.jobs, key=lambda job: job.id), supply)

    def _of_jobs(self, jobs: Sequence[JobSnapshot], supply: Supply) -> Plan:
        made = self._of_fleet if supply.terms.is_fleet else self._of_few
        return made(jobs, supply)

    def _with_studies(
        self, snapshot: Snapshot, works: Sequence[StudyWork], supply: Supply
    ) -> Plan:
        """Each study in turn against the ordinary jobs; these then share what is left."""
        trials = {job.id for work in works for job in (*work.jobs, *work.set_aside)}
        others = sorted(
            (job for job in snapshot.jobs if job.id not in trials), key=lambda job: job.id
        )

        def rest(taken: FloatArray) -> Plan:
            limits = tuple(
                replace(limit, maximum=max(limit.maximum - float(used), 0.0))
                for limit, used in zip(snapshot.limits, taken, strict=True)
            )
            return self._of_jobs(others, supply_of(replace(snapshot, limits=limits)))

        parts: list[StudyPart] = []
        for place, work in enumerate(works):
            later = [job for each in works[place + 1 :] for job in (*each.jobs, *each.set_aside)]
            taken = supply.uses(targets(parts).values()) + supply.uses(job.held for job in later)
            market = StudyMarket(supply, taken, others, rest, self._parameters.most_times_dearest)
            parts.append(contested(work, market))
        return together(rest(supply.uses(targets(parts).values())), parts, supply)

    def _of_few(self, jobs: Sequence[JobSnapshot], supply: Supply) -> Plan:
        outcome = self._settled(jobs, supply)
        targets, shared = outcome.targets, None
        if outcome.sharing is not None:
            made = outcome.sharing.award
            shared = _Shared(
                outcome.sharing.standings(), made.shadow_prices, made.gap, made.trouble
            )
        return _plan(
            jobs,
            _Given(
                targets=targets,
                bids={own.job.id: own.bid for own in outcome.wishes},
                keeping={own.job.id: _keeping(own) for own in outcome.wishes},
                facts=(facts_of(own, targets[own.job.id]) for own in outcome.wishes),
            ),
            supply,
            shared,
        )

    def _of_fleet(self, jobs: Sequence[JobSnapshot], supply: Supply) -> Plan:
        found = plan_fleet(jobs, supply, self._parameters.most_times_dearest)
        shared, made = None, found.division
        if found.standings is not None and made is not None:
            shared = _Shared(found.standings, made.prices, made.gap, made.trouble)
        return _plan(jobs, _Given(found.targets, found.bids, found.facts), supply, shared)

    def _settled(self, jobs: Sequence[JobSnapshot], supply: Supply) -> _Outcome:
        """What to hold, followed to where planning again would change nothing."""
        first = self._outcome(jobs, supply)
        if first.sharing is None:
            return first
        targets = first.targets
        if all(targets[job.id] == job.held for job in jobs):
            return first
        for _ in range(_PASSES):
            moved = [_moved(job, targets[job.id]) for job in jobs]
            following = self._outcome(moved, supply).targets
            if following == targets:
                break
            targets = following
        return _Outcome(first.wishes, targets, replace(first.sharing, targets=targets))

    def _outcome(self, jobs: Sequence[JobSnapshot], supply: Supply) -> _Outcome:
        room = supply.maximum - supply.uses(job.held for job in jobs)
        most_times = self._parameters.most_times_dearest
        wishes = [wish(job, supply, room, most_times) for job in jobs]
        targets = {own.job.id: _wished(own) for own in wishes}
        if supply.bears(supply.uses(targets.values())):
            return _Outcome(wishes, targets, None)
        sharing = share_out(wishes, supply, self._parameters.effort)
        return _Outcome(wishes, sharing.targets, sharing)


def _keeping(own: Wish) -> float:
    return keeping_usd_per_second(own.at, own.bid, own.work)


def _wished(own: Wish) -> Allocation | None:
    if own.why is Why.HOLDS_UNKNOWN:
        return own.job.held
    return None if own.target is None else own.at.candidates.allocation(own.target)


def _moved(job: JobSnapshot, target: Allocation | None) -> JobSnapshot:
    """The job once it has what was decided."""
    return job if target == job.held else replace(job, held=target, trained=target)


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    """How limits were shared that do not bear all wishes."""

    standings: Standings
    prices: FloatArray
    gap: float
    trouble: str | None


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """What each job gets and bids, by job, and what its reason is made of, in any order.

    `keeping` is what each saves by keeping what it holds, $ per second; of few jobs alone.
    """

    targets: Mapping[str, Allocation | None]
    bids: Mapping[str, float]
    facts: Iterable[Facts]
    keeping: Mapping[str, float] = field(default_factory=dict)


def _plan(
    jobs: Sequence[JobSnapshot], given: _Given, supply: Supply, shared: _Shared | None
) -> Plan:
    """The plan that gives each job what it is given."""
    around = Surroundings(supply, supply.uses(given.targets.values()))
    contests, prices = None, np.zeros(len(supply.limits))
    if shared is not None:
        prices = shared.prices
        contests = Contests(shared.standings, supply.limits, prices)
    ids = [job.id for job in jobs]
    changes = [(job.held, given.targets[job.id]) for job in jobs]
    first = dict(zip(ids, releases_first(changes, supply), strict=True))
    by_id = {job.id: job for job in jobs}
    decisions = {}
    for own in given.facts:
        job = own.job.id
        contest = None if contests is None else _with_minimum(contests.over(job), by_id)
        decision = _decision(own, given.bids[job], around, contest, first[job])
        saved = given.keeping.get(job, 0.0) * SECONDS_PER_HOUR
        figures = {**decision.figures, **({KEEPING_FIGURE: saved} if saved > 0 else {})}
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
    """Return a contest with the minimum of a rival that was given more at a lower bid for it."""
    if contest is None or contest.rival is None or not contest.took_it:
        return contest
    rival = jobs[contest.rival]
    held, minimum = 0 if rival.held is None else rival.held.instances, rival.instances.minimum
    is_higher = contest.rival_usd_per_second >= contest.own_usd_per_second
    if is_higher or held >= minimum or minimum == 1:
        return contest
    return replace(contest, rival_minimum=minimum)


def _decision(
    facts: Facts, bid: float, around: Surroundings, contest: Contest | None, release_first: bool
) -> Decision:
    """The decision that gives a job what the facts say."""
    job, target = facts.job, facts.target
    figures = {"bid_usd_per_hour": bid * SECONDS_PER_HOUR, "weight": job.weight}
    change = None if facts.given is None else facts.given.change
    if change is not None:
        figures |= change.figures()
        is_move = job.held is not None and target is not None and job.held.offer != target.offer
        release_first = release_first or (is_move and not change.works_on)
    return Decision(
        job=job.id,
        action=action_of(job.held, target, stops=facts.why is Why.STOPS),
        current=job.held,
        target=target,
        reason=reason(facts, around, contest),
        figures=figures,
        release_first=release_first,
        ground=facts.why.name.lower().replace("_", " ") if contest is None else "outbid",
    )
