"""Facts of one job's decision for its reason: the candidates it names, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.choice.demands import ChoiceReason, Demand
from autoscaler.economics.choice.exploration import fewest
from autoscaler.economics.choice.requirements import Requirement
from autoscaler.economics.explanation.change import GoodputChange, change_to


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """Candidate that a reason names.

    Attributes:
        offer: the offer.
        instances: number of instances.
        devices_used: devices used on each instance.
        usd_per_second: price with refills after reclaims.
        rate: useful examples a second.
        measured: whether step times of that size were measured.
        mean_usd: mean of J, the cost of the rest of the job, over the draws.
        better: share of the draws in which J is less than that of the held allocation.
        change: figures of the change from the held allocation; None if not reported.
    """

    offer: Offer
    instances: int
    devices_used: int
    usd_per_second: float
    rate: float
    measured: bool
    mean_usd: float = 0.0
    better: float = 0.0
    change: GoodputChange | None = None

    @property
    def size(self) -> tuple[str, int, int]:
        """Offer id, instances, and devices used on each."""
        return self.offer.id, self.instances, self.devices_used


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Facts behind the reason of a job's decision.

    Attributes:
        job: the job.
        requirement: what its objective requires now.
        why: category of its own choice.
        work: useful examples over which its choice counts.
        target: allocation that it gets.
        held: held candidate; None if nothing is held, or it can't be compared.
        given: target as a candidate.
        wished: candidate that the job would choose with the supply to itself.
        other: best alternative to the held candidate; a faster one if there is any.
        has_faster: whether a faster candidate exists.
        cheapest: cheapest candidate with the fewest instances, for a first start.
        later: second stage for its deadline or budget.
    """

    job: JobSnapshot
    requirement: Requirement
    why: ChoiceReason
    work: float
    target: Allocation | None
    held: Option | None = None
    given: Option | None = None
    wished: Option | None = None
    other: Option | None = None
    has_faster: bool = False
    cheapest: Option | None = None
    later: Option | None = None

    @property
    def has_its_wish(self) -> bool:
        """Whether the job gets the candidate that it would choose by itself."""
        if self.given is None or self.wished is None:
            return False
        return self.given.size == self.wished.size


def facts_of(demand: Demand, target: Allocation | None) -> Facts:
    """Return the facts of one job that gets `target`."""
    candidates, stages = demand.at.candidates, demand.requirement.stages
    given, held = candidates.index(target), candidates.held
    other, has_faster = (
        _alternative(demand) if given is not None and given == held else (None, False)
    )
    cheapest = None
    if demand.why is ChoiceReason.FIRST_START and given is not None:
        is_fewest = fewest(candidates)
        cheapest = int(np.argmin(np.where(is_fewest, candidates.usd_per_second, np.inf)))
    return Facts(
        job=demand.job,
        requirement=demand.requirement,
        why=demand.why,
        work=demand.work,
        target=target,
        held=_option(demand, held),
        given=_option(demand, given, is_told_of=True),
        wished=_option(demand, demand.target),
        other=_option(demand, other, is_told_of=True),
        has_faster=has_faster,
        cheapest=_option(demand, cheapest),
        later=None if stages is None else _option(demand, stages.then),
    )


def _alternative(demand: Demand) -> tuple[int | None, bool]:
    """Return the best alternative to the held candidate, and whether any is faster.

    The alternative is one of the faster candidates if there are any; None if nothing is allowed.
    """
    candidates, held = demand.at.candidates, demand.at.candidates.held
    is_other = candidates.allowed.copy()
    is_other[held] = False
    faster = is_other & (candidates.rate > candidates.rate[held])
    has_faster = bool(faster.any())
    eligible = faster if has_faster else is_other
    if not eligible.any():
        return None, False
    return int(np.argmin(np.where(eligible, demand.expected_usd, np.inf))), has_faster


def _option(demand: Demand, index: int | None, is_told_of: bool = False) -> Option | None:
    if index is None:
        return None
    candidates = demand.at.candidates
    sizes, cost, held = candidates.sizes, demand.cost[:, index], candidates.held
    return Option(
        offer=candidates.offer_of(index),
        instances=int(sizes.instances[index]),
        devices_used=int(sizes.devices_used[index]),
        usd_per_second=float(candidates.usd_per_second[index]),
        rate=float(candidates.rate[index]),
        measured=bool(candidates.measured[index]),
        mean_usd=float(cost.mean()),
        better=0.0 if held is None else float((cost < demand.cost[:, held]).mean()),
        change=change_to(demand, index) if is_told_of else None,
    )
