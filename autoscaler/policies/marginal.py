"""Each job by marginal goodput per dollar; shared limits by surplus. See docs/economics.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.change import change_to
from autoscaler.economics.objectives import MOST_TIMES_DEAREST
from autoscaler.economics.reasons import Contest, Surroundings, action_of, reason
from autoscaler.economics.supply import Supply, supply_of
from autoscaler.economics.wishes import Why, Wish, wish
from autoscaler.policies.contests import contest_of
from autoscaler.policies.program import Effort
from autoscaler.policies.sharing import Sharing, kept_unknown, share_out
from autoscaler.policies.transition import released_first

# A plan that limits bind is made again from where it leads, until that is where it leads.
_PASSES = 4

Targets = Mapping[str, Allocation | None]


@dataclass(frozen=True, slots=True)
class MarginalParameters:
    """How the policy plans.

    Attributes:
        effort: how hard to look for the best plan of many jobs.
        most_times_dearest: the highest value of time of any job, as a multiple of the price of
            its largest allocation.
    """

    effort: Effort = Effort()
    most_times_dearest: float = MOST_TIMES_DEAREST


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """What every job is to hold; `sharing` is None where the limits bear all wishes."""

    targets: Targets
    wishes: Sequence[Wish]
    sharing: Sharing | None


class MarginalPolicy:
    """Each job's own best; where the limits do not bear them all, the most surplus in all."""

    def __init__(self, parameters: MarginalParameters = MarginalParameters()) -> None:
        self._parameters = parameters

    def plan(self, snapshot: Snapshot) -> Plan:
        """As `Policy.plan`."""
        supply = supply_of(snapshot)
        jobs = sorted(snapshot.jobs, key=lambda job: job.id)
        outcome = self._settled(jobs, supply)
        changes = [(job.held, outcome.targets[job.id]) for job in jobs]
        first = released_first(changes, supply)
        around = Surroundings(supply, supply.uses(outcome.targets.values()))
        decisions = tuple(
            _decision(own, outcome, around, is_first)
            for own, is_first in zip(outcome.wishes, first, strict=True)
        )
        return _plan(decisions, outcome.sharing, supply)

    def _settled(self, jobs: Sequence[JobSnapshot], supply: Supply) -> _Outcome:
        """The first outcome, followed to where planning again would change nothing."""
        first = self._outcome(jobs, supply)
        if first.sharing is None:
            return first
        targets = first.targets
        for _ in range(_PASSES):
            following = self._outcome([_moved(job, targets[job.id]) for job in jobs], supply)
            if following.targets == targets:
                break
            targets = following.targets
        return replace(first, targets=targets)

    def _outcome(self, jobs: Sequence[JobSnapshot], supply: Supply) -> _Outcome:
        room = supply.maximum - supply.uses(job.held for job in jobs)
        most_times = self._parameters.most_times_dearest
        wishes = [wish(job, supply, room, most_times) for job in jobs]
        wanted = {own.job.id: _wanted(own) for own in wishes}
        if supply.bears(supply.uses(wanted.values())):
            return _Outcome(wanted, wishes, None)
        sharing = share_out(wishes, supply, self._parameters.effort)
        kept = kept_unknown(wishes, supply)
        return _Outcome({own.job.id: _given(own, sharing, kept) for own in wishes}, wishes, sharing)


def _wanted(own: Wish) -> Allocation | None:
    if own.why is Why.HOLDS_UNKNOWN:
        return own.job.held
    return None if own.target is None else own.at.candidates.allocation(own.target)
