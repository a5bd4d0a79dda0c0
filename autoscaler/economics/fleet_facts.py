"""What the reasons of a fleet's decisions are made of: of one job after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.aims import Aim
from autoscaler.economics.change import Change
from autoscaler.economics.facts import Facts, Option
from autoscaler.economics.fleet import Fleet
from autoscaler.economics.supply import BoolArray, IntArray


def fleet_targets(fleet: Fleet, given: IntArray) -> list[Allocation | None]:
    """What each job gets; `given` is its candidate, (J,), -1 for nothing."""
    at = np.arange(len(given)), np.maximum(given, 0)
    lists, offers = fleet.lists, fleet.supply.offers
    rows = zip(
        fleet.jobs,
        given.tolist(),
        lists.offer[at].tolist(),
        lists.instances[at].tolist(),
        lists.devices_used[at].tolist(),
        strict=True,
    )
    found: list[Allocation | None] = []
    for job, candidate, offer, *size in rows:
        target = None if candidate < 0 else Allocation(offers[offer].id, *size)
        found.append(job.held if target == job.held else target)
    return found


def fleet_facts(
    fleet: Fleet, given: IntArray, targets: Sequence[Allocation | None]
) -> Iterator[Facts]:
    """Those of each job; of all at once they would be too many objects to go through."""
    choices = fleet.choices
    holds, as_wished = fleet.has_held & (given == 0), choices.target == given
    other, has_faster = _alternatives(fleet)
    other = np.where(holds, other, -1)
    rows = zip(
        fleet.jobs,
        targets,
        fleet.value_of_time.tolist(),
        choices.why,
        fleet.work.tolist(),
        holds.tolist(),
        as_wished.tolist(),
        _options(fleet, np.where(fleet.has_held & ~holds, 0, -1)),
        _options(fleet, given, is_told_of=True),
        _options(fleet, np.where(as_wished, -1, choices.target)),
        _options(fleet, other, is_told_of=True),
        has_faster.tolist(),
        strict=True,
    )
    for job, target, value, why, work, stays, has_wish, kept, gets, wished, best, fast in rows:
        yield Facts(
            job=job,
            aim=Aim(value),
            why=why,
            work=work,
            target=target,
            held=gets if stays else kept,
            given=gets,
            wished=gets if has_wish else wished,
            other=best,
            has_faster=fast,
        )


def _alternatives(fleet: Fleet) -> tuple[IntArray, BoolArray]:
    """The best beside what is held, of the faster ones if any is, and whether any is, (J,)."""
    others = fleet.lists.allowed.copy()
    others[:, 0] &= ~fleet.has_held
    faster = others & (fleet.rate > fleet.rate[:, :1])
    has_faster: BoolArray = faster.max(axis=1)
    among = np.where(has_faster[:, None], faster, others)
    best = np.where(among, fleet.choices.expected_usd, np.inf).argmin(axis=1)
    return np.where(among.max(axis=1), best, -1), has_faster


def _changes(fleet: Fleet, columns: IntArray) -> Iterator[Change | None]:
    """From what each job holds to a candidate of it; None for -1."""
    at = np.arange(len(columns)), np.maximum(columns, 0)
    taken, value, has = fleet.taken, fleet.value_of_time, fleet.has_held
    price, works_on = fleet.lists.usd_per_second[at], taken.works_on[at]
    idle_usd = np.where(works_on, 0.0, taken.ready_seconds[at]) * value
    paused_usd = taken.pause_seconds[at] * (price + value)
    rows = zip(
        (columns >= 0).tolist(),
        np.where(has, fleet.rate[:, 0], 0.0).tolist(),
        fleet.rate[at].tolist(),
        np.where(has, fleet.lists.usd_per_second[:, 0], 0.0).tolist(),
        price.tolist(),
        value.tolist(),
        taken.ready_seconds[at].tolist(),
        works_on.tolist(),
        (taken.boot_usd[at] + idle_usd + paused_usd).tolist(),
        taken.carried_usd[at].tolist(),
        (has & (fleet.ends.network[at] != fleet.ends.network[:, 0])).tolist(),
        strict=True,
    )
    return (Change(*row) if exists else None for exists, *row in rows)


def _options(fleet: Fleet, columns: IntArray, is_told_of: bool = False) -> Iterator[Option | None]:
    """A candidate of each job in plain numbers; None for -1."""
    at = np.arange(len(columns)), np.maximum(columns, 0)
    lists, choices, offers = fleet.lists, fleet.choices, fleet.supply.offers
    rows = zip(
        (columns >= 0).tolist(),
        lists.offer[at].tolist(),
        lists.instances[at].tolist(),
        lists.devices_used[at].tolist(),
        lists.usd_per_second[at].tolist(),
        fleet.rate[at].tolist(),
        lists.measured[at].tolist(),
        choices.mean_usd[at].tolist(),
        choices.better[at].tolist(),
        _changes(fleet, columns) if is_told_of else repeat(None, len(columns)),
        strict=True,
    )
    return (Option(offers[offer], *row) if exists else None for exists, offer, *row in rows)
