"""Facts of a fleet's decisions for their reasons, one job at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat, starmap

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.choice.demands import Demand
from autoscaler.economics.explanation.change import GoodputChange
from autoscaler.economics.explanation.facts import Facts, Option
from autoscaler.economics.fleets.fleet import Fleet, column_of, fleet_of_one
from autoscaler.economics.supply.supply import BoolArray, IntArray


def fleet_facts(
    fleet: Fleet, given: IntArray, targets: Sequence[Allocation | None]
) -> Iterator[Facts]:
    """Yield the facts of each job, lazily, since all at once would take too much memory."""
    choices, gets = fleet.choices, given >= 0
    holds, as_wished = fleet.has_held & (given == 0), choices.target == given
    other, has_faster = _alternatives(fleet)
    other = np.where(holds, other, -1)
    rows = zip(
        fleet.jobs,
        targets,
        fleet.requirements,
        choices.why,
        fleet.work.tolist(),
        holds.tolist(),
        as_wished.tolist(),
        _options(fleet, np.where(fleet.has_held & ~holds & gets, 0, -1)),
        _options(fleet, given, is_told_of=True),
        _options(fleet, np.where(gets & ~as_wished, choices.target, -1)),
        _options(fleet, other, is_told_of=True),
        has_faster.tolist(),
        _options(fleet, choices.cheapest),
        _options(fleet, choices.later),
        strict=True,
    )
    for (
        job,
        target,
        requirement,
        why,
        work,
        stays,
        gets_demand,
        held,
        given_option,
        wished,
        alternative,
        is_faster,
        cheapest,
        later,
    ) in rows:
        yield Facts(
            job=job,
            requirement=requirement,
            why=why,
            work=work,
            target=target,
            held=given_option if stays else held,
            given=given_option,
            wished=given_option if gets_demand else wished,
            other=alternative,
            has_faster=is_faster,
            cheapest=cheapest,
            later=later,
        )


def facts_of_one(demand: Demand, target: Allocation | None) -> Facts:
    """Return the facts of one job that gets `target`."""
    candidates = demand.at.candidates
    if not len(candidates):
        return Facts(demand.job, demand.requirement, demand.why, demand.work, target)
    given = np.array([column_of(candidates, candidates.index(target))])
    return next(fleet_facts(fleet_of_one(demand), given, [target]))


def _alternatives(fleet: Fleet) -> tuple[IntArray, BoolArray]:
    """Return the best alternative to the held candidate, (J,), and whether any is faster, (J,).

    The alternative is one of the faster candidates if there are any; -1 if nothing is allowed.
    """
    is_other = fleet.lists.allowed.copy()
    is_other[:, 0] &= ~fleet.has_held
    faster = is_other & (fleet.rate > fleet.rate[:, :1])
    has_faster: BoolArray = faster.max(axis=1)
    eligible = np.where(has_faster[:, None], faster, is_other)
    best = np.where(eligible, fleet.choices.expected_usd, np.inf).argmin(axis=1)
    return np.where(eligible.max(axis=1), best, -1), has_faster


def _changes(fleet: Fleet, jobs: IntArray, columns: IntArray) -> Iterator[GoodputChange]:
    """Yield the figures of the changes from the held candidates of n jobs to other candidates.

    `jobs` and `columns` are indices of jobs and candidates, (n,).
    """
    index, value, has_held = (jobs, columns), fleet.value_of_time[jobs], fleet.has_held[jobs]
    lists, changes, network = fleet.lists, fleet.taken, fleet.ends.network
    price, trains_during_boot = lists.usd_per_second[index], changes.trains_during_boot[index]
    idle_usd = np.where(trains_during_boot, 0.0, changes.ready_seconds[index]) * value
    paused_usd = changes.pause_seconds[index] * (price + value)
    rows = zip(
        np.where(has_held, fleet.rate[jobs, 0], 0.0).tolist(),
        fleet.rate[index].tolist(),
        np.where(has_held, lists.usd_per_second[jobs, 0], 0.0).tolist(),
        price.tolist(),
        value.tolist(),
        changes.ready_seconds[index].tolist(),
        trains_during_boot.tolist(),
        (changes.boot_usd[index] + idle_usd + paused_usd).tolist(),
        changes.carried_usd[index].tolist(),
        (has_held & (network[index] != network[jobs, 0])).tolist(),
        strict=True,
    )
    return starmap(GoodputChange, rows)


def _options(fleet: Fleet, columns: IntArray, is_told_of: bool = False) -> Iterable[Option | None]:
    """Return one candidate of each job as plain numbers, in order; None for -1.

    `columns` are candidates of the J jobs, (J,).
    """
    (jobs,) = np.nonzero(columns >= 0)
    if not len(jobs):
        return repeat(None, len(columns))
    index = jobs, columns[jobs]
    lists, choices, offers = fleet.lists, fleet.choices, fleet.terms.offers
    rows = zip(
        [offers[offer] for offer in lists.offer[index].tolist()],
        lists.instances[index].tolist(),
        lists.devices_used[index].tolist(),
        lists.usd_per_second[index].tolist(),
        fleet.rate[index].tolist(),
        lists.measured[index].tolist(),
        choices.mean_usd[index].tolist(),
        choices.better[index].tolist(),
        _changes(fleet, *index) if is_told_of else repeat(None, len(jobs)),
        strict=True,
    )
    options: list[Option | None] = [None] * len(columns)
    for job, row in zip(jobs.tolist(), rows, strict=True):
        options[job] = Option(*row)
    return options
