"""Facts of a decision for its reason: the candidates it names, as plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.choice.demands import ChoiceReason
from autoscaler.economics.choice.requirements import Requirement
from autoscaler.economics.explanation.change import GoodputChange


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

    The reason of a job that gets nothing names no candidate: then `held` and `wished` are None.

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
