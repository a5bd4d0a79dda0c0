"""What is known of a study's rungs: the trials of the present one, and what comes after it.

A rung is a stage of a synchronous search: its trials train up to a barrier, some survive, and the
next rung begins when the last has arrived. Who survives is the pruner's business; what a trial
holds until then is decided here. Arrays are of K equally likely draws of what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.terms import TrialProgress
from autoscaler.economics.spot import goodput_with_reclaims, price_with_refills
from autoscaler.economics.supply import SECONDS_PER_HOUR, BoolArray, IntArray
from autoscaler.goodput.throughput import FloatArray


@dataclass(frozen=True, slots=True)
class TrialSwitching:
    """What it costs a trial to change, in seconds without progress.

    Attributes:
        pause_seconds: from one size to another while it trains.
        start_seconds: from an instance that has booted to the first step.
        handover_seconds: from an instance that another trial left, ready, to the first step.
        lost_seconds: of training that a reclaim undoes where nothing is left to go on with.
        look_seconds: of training until a trial's speed is known.
    """

    pause_seconds: float
    start_seconds: float
    handover_seconds: float
    lost_seconds: float = 0.0
    look_seconds: float = 10.0


@dataclass(frozen=True, eq=False)
class StudySupply:
    """What trials may hold: A sizes of the offers, the limits on all together, the switching.

    A size holds whole instances: of one with several devices all are paid for.
    """

    offers: tuple[Offer, ...]
    sizes: tuple[Allocation, ...]
    switching: TrialSwitching
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        known = {offer.id for offer in self.offers}
        for size in self.sizes:
            if size.offer not in known:
                raise ValueError(f"size {size}: {size.offer} is none of the offers")
        if not self.sizes:
            raise ValueError("a study has at least one size that its trials may hold")

    @cached_property
    def place_of(self) -> Mapping[str, int]:
        """Where each offer stands among the offers, by its id."""
        return {offer.id: place for place, offer in enumerate(self.offers)}

    @cached_property
    def offer_of(self) -> IntArray:
        """Which offer each size is of, (A,)."""
        return np.array([self.place_of[size.offer] for size in self.sizes], dtype=np.int64)

    @cached_property
    def instances(self) -> IntArray:
        """How many instances each size holds, (A,)."""
        return np.array([size.instances for size in self.sizes], dtype=np.int64)

    @cached_property
    def unit_usd_per_second(self) -> FloatArray:
        """$ a second of one instance of each size's offer, (A,)."""
        return np.array([offer.usd_per_second for offer in self.offers])[self.offer_of]

    @cached_property
    def boot_seconds(self) -> FloatArray:
        """From an order of each size's offer to an instance that is ready, (A,)."""
        boots = [offer.boot_seconds + offer.fill_seconds for offer in self.offers]
        return np.array(boots, dtype=np.float64)[self.offer_of]

    @cached_property
    def minimum_billed_seconds(self) -> FloatArray:
        """Seconds of each new instance that are paid for in any case, (A,)."""
        seconds = [offer.minimum_billed_seconds for offer in self.offers]
        return np.array(seconds, dtype=np.float64)[self.offer_of]

    @cached_property
    def reclaims_per_second(self) -> FloatArray:
        """Of all instances of each size together, (A,)."""
        hazards = [offer.reclaims_per_hour / SECONDS_PER_HOUR for offer in self.offers]
        rates: FloatArray = self.instances * np.array(hazards)[self.offer_of]
        return rates

    @cached_property
    def usd_per_second(self) -> FloatArray:
        """$ a second of each size, the boots of what takes a reclaimed one's place included."""
        return price_with_refills(
            self.unit_usd_per_second,
            self.instances.astype(np.float64),
            self.reclaims_per_second,
            self.boot_seconds,
        )

    @cached_property
    def uses(self) -> FloatArray:
        """What one instance of each offer takes of each of R limits, (R, O)."""
        uses = [[limit.use(offer) for offer in self.offers] for limit in self.limits]
        return np.array(uses, dtype=np.float64).reshape(len(self.limits), len(self.offers))

    @cached_property
    def maximum(self) -> FloatArray:
        """Of each limit, (R,)."""
        return np.array([limit.maximum for limit in self.limits], dtype=np.float64)

    @cached_property
    def one_less(self) -> IntArray:
        """The size that is left of each when one instance is lost, (A,); -1 where none is."""
        place = {size: index for index, size in enumerate(self.sizes)}
        left = []
        for size in self.sizes:
            smaller = None
            if size.instances > 1:
                smaller = Allocation(size.offer, size.instances - 1, size.devices_used)
            left.append(place.get(smaller, -1) if smaller is not None else -1)
        return np.array(left, dtype=np.int64)

    def with_reclaims(self, goodput: FloatArray) -> FloatArray:
        """Mean goodput once reclaims are counted, (..., A): spot earns less than it could.

        A size of which one less is no size here is taken to lose its share, and a lone instance
        all of its goodput until the next is ready.
        """
        if not self.reclaims_per_second.any():
            return goodput
        share = 1.0 - 1.0 / self.instances
        less = np.where(self.one_less >= 0, goodput[..., self.one_less], share * goodput)
        alone = self.instances == 1
        pause = self.switching.pause_seconds + alone * self.switching.lost_seconds
        refill = self.boot_seconds + self.switching.start_seconds
        return goodput_with_reclaims(goodput, less, self.reclaims_per_second, refill, pause)


_NO_DRAWS = np.zeros((0, 0))


@dataclass(frozen=True, slots=True, eq=False)
class TrialState:
    """A trial that has not ended, or one of those that are to begin.

    Attributes:
        id: its name in reasons.
        to_decision: work to its next decision, in any unit; 0: it waits for that.
        goodput: units of work a second on each size in each draw, (K, A); 0: not for it now.
        held: which of the sizes it holds; None: none.
        ready_seconds: until what it holds trains: a boot or a start that goes on.
        paid_seconds: of what it holds that are paid for in any case (the billing minimum).
        is_measured: whether its own speed was measured, on whatever size.
        to_end: work to the end of its training.
        later_goodput: goodput once what was decided for it has come about, with all that is not
            known of it now.
        progress: what was told of it last.
        can_pause: whether it resumes where it was after giving back what it holds.
        ordered_seconds: when the last of what it holds was ordered; None: not known.
        is_changing: whether it does not yet train on what it holds.
        is_expected: whether it stands for a trial that has not begun, and may never.
    """

    id: str
    to_decision: float
    goodput: FloatArray
    held: int | None = None
    ready_seconds: float = 0.0
    paid_seconds: float = 0.0
    is_measured: bool = True
    to_end: float = 0.0
    later_goodput: FloatArray = field(default_factory=lambda: _NO_DRAWS)
    progress: TrialProgress = field(default_factory=lambda: TrialProgress(""))
    can_pause: bool = False
    ordered_seconds: float | None = None
    is_changing: bool = False
    is_expected: bool = False

    @property
    def waits_for_decision(self) -> bool:
        """Whether it has come to where its pruner decides next."""
        return self.to_decision <= 0

    @property
    def can_train(self) -> bool:
        """Whether there is a size for it."""
        return bool((self.goodput > 0).any(axis=1).all())


@dataclass(frozen=True, slots=True)
class FreedInstances:
    """Instances that the study holds and no trial does: left by one, or ordered ahead."""

    offer: str
    instances: int
    paid_seconds: float = 0.0
    ready_seconds: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class FutureRung:
    """A rung to come, as it may be: n trials, of whom is known only a distribution.

    Attributes:
        work: of each, (K, n).
        goodput: of each on every size, (K, n, A).
    """

    work: FloatArray
    goodput: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Rung:
    """The present rung, what the study holds beside its trials, and the rungs to come.

    Where they `may_pause`, trials that train may make room for a look at others: they go on where
    they were.
    """

    trials: tuple[TrialState, ...]
    freed: tuple[FreedInstances, ...] = ()
    future: tuple[FutureRung, ...] = ()
    may_pause: bool = True

    def __post_init__(self) -> None:
        for trial in self.trials:
            if trial.waits_for_decision:
                raise ValueError(f"trial {trial.id} is at its barrier: it is none of the rung")
            if not trial.can_train:
                raise ValueError(f"trial {trial.id}: no size can run it")


@dataclass(frozen=True, slots=True)
class SurvivorDraws:
    """Of whom later rungs may be made: `weights` (n,) are the chances, None alike; a `seed`."""

    weights: FloatArray | None = None
    seed: int = 0


def settled(goodput: FloatArray, is_measured: BoolArray) -> FloatArray:
    """Draws (K, N, A) to plan by until all trials have been looked at.

    What a trial's own speed is will be known as soon as it trains, long before what is bought on
    a guess of it is ready. So one that nobody measured counts with its median, in all draws.
    """
    median = np.median(goodput, axis=0, keepdims=True)
    draws: FloatArray = np.where(is_measured[:, None], goodput, median)
    return draws


def future_rungs(
    goodput: FloatArray,
    counts: Sequence[int],
    works: Sequence[float],
    chances: SurvivorDraws | None = None,
) -> tuple[FutureRung, ...]:
    """Later rungs drawn from the trials that are in the race, each a part of the one before.

    In each draw the trials are put in an order of survival, drawn without replacement by their
    weights (Efraimidis and Spirakis 2006: least exponential over weight first), and rung r is
    the first `counts[r]` of it. Who comes first is stratified: each trial does in its share of
    the draws, so that with as many draws as trials the slowest is once the one that remains.

    Args:
        goodput: of the n trials in the race, (K, n, A).
        counts: how many train in each later rung.
        works: what each of them has to do there.
        chances: their weights, and where the random numbers begin.
    """
    draws, trials, _ = goodput.shape
    chances = chances or SurvivorDraws()
    weights = np.ones(trials) if chances.weights is None else np.maximum(chances.weights, 1e-12)
    rng = np.random.default_rng(chances.seed)
    order = np.argsort(rng.exponential(size=(draws, trials)) / weights, axis=1)
    order = _with_each_best(order, weights / weights.sum())
    rungs = []
    for count, work in zip(counts, works, strict=True):
        chosen = order[:, : min(count, trials)]
        rate = np.take_along_axis(goodput, chosen[:, :, None], axis=1)
        rungs.append(FutureRung(np.full(chosen.shape, float(work)), rate))
    return tuple(rungs)


def _with_each_best(order: IntArray, share: FloatArray) -> IntArray:
    """The orders with who is first set anew, by systematic sampling of the shares."""
    draws = len(order)
    points = (np.arange(draws) + 0.5) / draws
    first = np.searchsorted(np.cumsum(share), points, side="right").clip(max=len(share) - 1)
    rest = order != first[:, None]
    kept = order[rest].reshape(draws, -1)
    stratified: IntArray = np.concatenate([first[:, None], kept], axis=1)
    return stratified
