"""Counterfactual bill of a job: predicted cost of the same progress under other rules.

The job's journal is replayed: each rule decides at the moments at which the run did, from the
prices, limits and models known then. Its decisions have their consequences here, by the model as
last fitted: boots, pauses, and the speed of each draw of the model. Nothing here was billed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from autoscaler.controller.predict.replay import require_kept_ground
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import CastorError, Conflict, StoreError
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Purchase, limits_beside
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates
from autoscaler.economics.forecasts.forecast import Range, range_of
from autoscaler.economics.pricing.starts import start_seconds
from autoscaler.economics.supply.supply import supply_of
from autoscaler.goodput.throughput import FloatArray
from autoscaler.policies.registry import create_policy
from autoscaler.store.repositories.journal import JournalEntry
from autoscaler.store.store import Store

PUBLISHED_FOR_ONE_JOB: Final = ("pollux", "throughput")
"""Published policies that size one job by bought instances; the others share out a pool."""

_MOST_MOMENTS: Final = 100
_LONGEST_SECONDS: Final = 10 * 365 * 86_400.0

BEST_POOL: Final = "best fixed pool, no later"
CHEAPEST_POOL: Final = "cheapest fixed pool"
OWN_RULE: Final = "marginal"
OWN_RULE_ON_DEMAND: Final = f"{OWN_RULE}, {Purchase.ON_DEMAND.value} only"

RULE_TITLES: Final[Mapping[str, str]] = {
    BEST_POOL: "Best fixed pool that ends no later, in hindsight",
    CHEAPEST_POOL: "Cheapest fixed pool, however late",
    OWN_RULE: "Castor's own rule",
    OWN_RULE_ON_DEMAND: "Castor's own rule, on-demand only",
    "pollux": "Pollux, as published",
    "throughput": "Scaling by throughput, as published",
}
"""Words for the names of rules that people read."""

Rule = Callable[[Snapshot], Allocation | None]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Predicted bill under another rule.

    `usd` and `seconds` are bands of cost and duration, from submission to the same progress; None
    with a `problem`. `allocation` is that of a fixed pool.
    """

    name: str
    usd: Range | None = None
    seconds: Range | None = None
    allocation: Allocation | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Alternatives to the run of a job, for the progress `examples` that it made.

    `moments` decisions were replayed. `lost` more are not kept with their inputs any more.
    """

    examples: float
    moments: int
    lost: int
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class _Moment:
    """Snapshot with this job alone, and its candidates by the last model."""

    snapshot: Snapshot
    job: JobSnapshot
    choice: Candidates


def counterfactual(store: Store, job: JobRecord, now_seconds: float) -> Counterfactual:
    """Return the counterfactual bill of a job until now, or until its end.

    Raises:
        Conflict: the job has no progress yet, or no decision with kept inputs.
    """
    kept, lost = _kept_snapshots(store, job.id)
    moments = _moments(job.id, kept, store.jobs.progress_before(job))
    if not moments or job.report is None:
        raise Conflict(
            f"{job.id} has no progress with a kept decision: a counterfactual bill needs both"
        )
    begun_examples = moments[0].job.progress_examples
    examples = job.report.progress_examples - begun_examples
    if examples <= 0:
        raise Conflict(f"{job.id} has made no progress yet: ask again when it has")
    ended_seconds = now_seconds if job.ended_seconds is None else job.ended_seconds
    latest_seconds = max(ended_seconds, job.spec.objective.deadline_seconds or 0.0)
    longest_seconds = latest_seconds - moments[0].snapshot.now_seconds
    alternatives = (
        *_fixed_pools(moments, examples, longest_seconds),
        _by_policy(OWN_RULE, moments, examples),
        _by_policy(OWN_RULE, moments, examples, Purchase.ON_DEMAND),
        *(_by_policy(name, moments, examples) for name in PUBLISHED_FOR_ONE_JOB),
    )
    return Counterfactual(examples, len(moments), lost, alternatives)


def _kept_snapshots(store: Store, job: str) -> tuple[list[Snapshot], int]:
    """Return the snapshots of a job's decisions in order of time, and the number not kept."""
    entries: dict[int, JournalEntry] = {}
    for entry in store.journal.decisions(job, sys.maxsize)[::-1]:
        entries.setdefault(entry.plan, entry)
    snapshots, lost = [], 0
    for entry in _thinned(list(entries.values())):
        try:
            snapshots.append(store.journal.inputs(entry))
        except StoreError:
            lost += 1
    return snapshots, lost


def _thinned(entries: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
    """Return at most `_MOST_MOMENTS` entries, evenly over all, the first and last included."""
    if len(entries) <= _MOST_MOMENTS:
        return entries
    places = np.linspace(0, len(entries) - 1, _MOST_MOMENTS).round().astype(int)
    return [entries[place] for place in places]


def _moments(job_id: str, snapshots: Sequence[Snapshot], begun_examples: float) -> list[_Moment]:
    """Return the moments of the job alone; other jobs' instances are taken off the limits.

    A resumed job has at least the progress `begun_examples`, also before its first report.
    """
    jobs = [_job_in(snapshot, job_id, begun_examples) for snapshot in snapshots]
    known = [(snapshot, job) for snapshot, job in zip(snapshots, jobs, strict=True) if job]
    moments = []
    for snapshot, job in known:
        held: Counter[str] = Counter()
        for other in snapshot.jobs:
            if other.id != job_id and other.held is not None:
                held[other.held.offer] += other.held.instances
        limits = limits_beside(snapshot.limits, snapshot.offers, held)
        alone = replace(snapshot, limits=limits, jobs=(job,), studies=())
        modelled = replace(job, models=known[-1][1].models, held=None, trained=None)
        moments.append(_Moment(alone, job, candidates(modelled, supply_of(alone))))
    return moments


def _job_in(snapshot: Snapshot, job_id: str, begun_examples: float) -> JobSnapshot | None:
    job = next((job for job in snapshot.jobs if job.id == job_id), None)
    if job is None or job.progress_examples >= begun_examples:
        return job
    left = job.remaining_examples
    if left is not None:
        left = max(left - (begun_examples - job.progress_examples), 0.0)
    return replace(job, progress_examples=begun_examples, remaining_examples=left)


def _fixed_pools(
    moments: Sequence[_Moment], examples: float, longest_seconds: float
) -> Iterator[Alternative]:
    """Yield the cheapest fixed pool of all, and the cheapest that is no later than the run."""
    pools: list[tuple[Range, Range, Allocation]] = []
    choice = moments[-1].choice
    for index in range(len(choice)):
        allocation, offer = choice.allocation(index), choice.offer_of(index)
        limits = moments[-1].snapshot.limits
        has_room = all(
            limit.use(offer) * allocation.instances <= limit.maximum for limit in limits
        )
        if choice.sizes.devices_used[index] == offer.devices and has_room:
            usd, seconds = _Walk(moments, examples).run(partial(_always, allocation))
            if np.isfinite(usd).all():
                pools.append((range_of(usd), range_of(seconds), allocation))
    in_time = [pool for pool in pools if pool[1].median <= longest_seconds]
    for name, group in ((BEST_POOL, in_time), (CHEAPEST_POOL, pools)):
        if group:
            usd_band, seconds_band, best = min(group, key=lambda pool: pool[0].median)
            yield Alternative(name, usd_band, seconds_band, best)
        else:
            yield Alternative(name, problem="no fixed pool within the bounds and limits")


def _always(allocation: Allocation, _: Snapshot) -> Allocation:
    """Return the same allocation at every moment."""
    return allocation


def _by_policy(
    name: str, moments: Sequence[_Moment], examples: float, only: Purchase | None = None
) -> Alternative:
    """Return the bill under a policy that may buy everything, or one kind of purchase only."""
    title = name if only is None else f"{name}, {only.value} only"

    def decide(snapshot: Snapshot) -> Allocation | None:
        if only is not None:
            offers = tuple(offer for offer in snapshot.offers if offer.purchase is only)
            snapshot = replace(snapshot, offers=offers)
        return policy.plan(snapshot).decisions[0].target

    try:
        policy = create_policy(name)
        require_kept_ground(name, policy, moments[-1].snapshot)
        usd, seconds = _Walk(moments, examples).run(decide)
    except (CastorError, ArithmeticError, LookupError, ValueError) as error:
        return Alternative(title, problem=f"it can't plan this run: {error}")
    if not np.isfinite(usd).all():
        return Alternative(title, problem="it buys nothing at the end of the journal")
    return Alternative(title, range_of(usd), range_of(seconds))


class _Walk:
    """Run of one job under a rule, for K draws of its model at once."""

    def __init__(self, moments: Sequence[_Moment], examples: float) -> None:
        self._moments = moments
        draws = moments[-1].choice.seconds_per_example.shape[0]
        self._left = np.full(draws, examples)
        self._usd = np.zeros(draws)
        self._seconds = np.zeros(draws)
        self._held: Allocation | None = None

    def run(self, rule: Rule) -> tuple[FloatArray, FloatArray]:
        """Return cost and seconds for each draw, (K,); infinite for those that never end."""
        examples = float(self._left[0])
        for place, moment in enumerate(self._moments):
            if not (self._left > 0).any():
                break
            is_last = place + 1 == len(self._moments)
            now_seconds = moment.snapshot.now_seconds
            until_seconds = (
                now_seconds + _LONGEST_SECONDS
                if is_last
                else self._moments[place + 1].snapshot.now_seconds
            )
            target = rule(self._seen(moment, examples))
            self._pass(moment, target, max(until_seconds - now_seconds, 0.0))
        never = self._left > 0
        return np.where(never, np.inf, self._usd), np.where(never, np.inf, self._seconds)

    def _seen(self, moment: _Moment, examples: float) -> Snapshot:
        """Return the snapshot that the rule would have had, at the median progress."""
        job, left = moment.job, float(np.median(self._left))
        beyond = 0.0
        if job.remaining_examples is not None:
            total = self._moments[0].job.progress_examples + examples
            beyond = max(job.progress_examples + job.remaining_examples - total, 0.0)
        seen = replace(
            job,
            held=self._held,
            trained=self._held,
            standby=None,
            placement=None,
            spent_usd=float(np.median(self._usd)),
            progress_examples=self._moments[0].job.progress_examples + examples - left,
            remaining_examples=None if job.remaining_examples is None else left + beyond,
        )
        return replace(moment.snapshot, jobs=(seen,), undisturbed=frozenset())

    def _pass(self, moment: _Moment, target: Allocation | None, seconds: float) -> None:
        """Let time pass at `target`: first its boot or pause, then training at its speed."""
        before, self._held = self._held, target
        index = moment.choice.index(target)
        if target is None or index is None:
            self._seconds = self._seconds + np.where(self._left > 0, seconds, 0.0)
            return
        price = float(moment.choice.usd_per_second[index])
        halt_seconds, meanwhile = self._halt(moment, before, target)
        halted_seconds = min(halt_seconds, seconds)
        self._train(meanwhile, price, halted_seconds)
        rate = 1.0 / moment.choice.seconds_per_example[:, index]
        self._train(rate, price, seconds - halted_seconds)

    def _halt(
        self, moment: _Moment, before: Allocation | None, target: Allocation
    ) -> tuple[float, FloatArray]:
        """Return for how long a change delays the new speed, and the speed until then, (K,)."""
        none = np.zeros_like(self._left)
        if before == target:
            return 0.0, none
        switching = moment.job.switching
        offer = next(offer for offer in moment.snapshot.offers if offer.id == target.offer)
        boot_seconds = start_seconds(switching, offer)
        if before is None:
            return boot_seconds, none
        if before.offer == target.offer and target.instances <= before.instances:
            return switching.pause_seconds, none
        index = moment.choice.index(before)
        if index is None or switching.restarts:
            return boot_seconds + switching.pause_seconds, none
        # The held instances train while the new ones boot; the pause makes that a little less.
        share = boot_seconds / max(boot_seconds + switching.pause_seconds, 1e-9)
        rate = share / moment.choice.seconds_per_example[:, index]
        return boot_seconds + switching.pause_seconds, rate

    def _train(self, rate: FloatArray, price: float, seconds: float) -> None:
        """Train for some time at a speed, (K,), in examples a second; draws end when done."""
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(rate > 0, self._left / rate, np.inf)
        spent = np.where(self._left > 0, np.minimum(needed, seconds), 0.0)
        self._usd = self._usd + price * spent
        self._seconds = self._seconds + spent
        is_done = needed <= seconds
        self._left = np.where(is_done, 0.0, np.maximum(self._left - rate * spent, 0.0))
