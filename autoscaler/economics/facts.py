"""What the reason of one decision is made of: the candidates it names, in plain numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.aims import Aim
from autoscaler.economics.change import Change, change_to
from autoscaler.economics.exploration import fewest
from autoscaler.economics.wishes import Why, Wish


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """A candidate that a reason names.

    Attributes:
        offer: what it is of.
        instances: how many.
        devices_used: of each.
        usd_per_second: with the refills of spot.
        rate: useful examples a second.
        measured: whether step times of that size were measured.
        mean_usd: J, the mean over the draws.
        better: in which share of the draws J is less than that of what is held.
        change: from what is held to it, if that is told of.
    """

    offer: Offer
    instances: int
    devices_used: int
    usd_per_second: float
    rate: float
    measured: bool
    mean_usd: float = 0.0
    better: float = 0.0
    change: Change | None = None

    @property
    def size(self) -> tuple[str, int, int]:
        """What it would be to hold it."""
        return self.offer.id, self.instances, self.devices_used


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What the reason of a job's decision is made of.

    Attributes:
        job: whose it is.
        aim: what its objective asks for.
        why: the ground of what it wishes.
        work: useful examples over which its choice counts.
        target: what it gets.
        held: what it holds, if that can be judged.
        given: its target among the candidates.
        wished: what it would have by itself.
        other: the best beside what it holds; of the faster ones, if any is.
        has_faster: whether any is.
        cheapest: the cheapest of the fewest instances, for a first start.
        later: what follows by its deadline or budget.
    """

    job: JobSnapshot
    aim: Aim
    why: Why
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
        """Whether it gets what it would have by itself."""
        if self.given is None or self.wished is None:
            return False
        return self.given.size == self.wished.size


@lru_cache(maxsize=512)
def facts_of(wish: Wish, target: Allocation | None) -> Facts:
    """Those of one job that gets `target`."""
    every, stages = wish.at.candidates, wish.aim.stages
    given, held = every.index(target), every.held
    other, has_faster = (
        _alternative(wish) if given is not None and given == held else (None, False)
    )
    cheapest = None
    if wish.why is Why.FIRST_START and given is not None:
        few = fewest(every)
        cheapest = int(np.argmin(np.where(few, every.usd_per_second, np.inf)))
    return Facts(
        job=wish.job,
        aim=wish.aim,
        why=wish.why,
        work=wish.work,
        target=target,
        held=_option(wish, held),
        given=_option(wish, given, is_told_of=True),
        wished=_option(wish, wish.target),
        other=_option(wish, other, is_told_of=True),
        has_faster=has_faster,
        cheapest=_option(wish, cheapest),
        later=None if stages is None else _option(wish, stages.then),
    )


def _alternative(wish: Wish) -> tuple[int | None, bool]:
    """The best beside what is held, of the faster ones if any is, and whether any is."""
    candidates, held = wish.at.candidates, wish.at.candidates.held
    others = candidates.allowed.copy()
    others[held] = False
    faster = others & (candidates.rate > candidates.rate[held])
    has_faster = bool(faster.any())
    among = faster if has_faster else others
    if not among.any():
        return None, False
    return int(np.argmin(np.where(among, wish.expected_usd, np.inf))), has_faster


def _option(wish: Wish, index: int | None, is_told_of: bool = False) -> Option | None:
    if index is None:
        return None
    every = wish.at.candidates
    sizes, cost, held = every.sizes, wish.cost[:, index], every.held
    return Option(
        offer=every.offer_of(index),
        instances=int(sizes.instances[index]),
        devices_used=int(sizes.devices_used[index]),
        usd_per_second=float(every.usd_per_second[index]),
        rate=float(every.rate[index]),
        measured=bool(every.measured[index]),
        mean_usd=float(cost.mean()),
        better=0.0 if held is None else float((cost < wish.cost[:, held]).mean()),
        change=change_to(wish, index) if is_told_of else None,
    )
