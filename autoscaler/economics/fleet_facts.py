"""What the reasons of a fleet's decisions are made of, for all its jobs at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from autoscaler.domain.allocation import Allocation
from autoscaler.economics.aims import Aim
from autoscaler.economics.change import Change
from autoscaler.economics.facts import Facts, Option
from autoscaler.economics.fleet import Fleet
from autoscaler.economics.supply import BoolArray, IntArray

_Options = Sequence[Option | None]


def fleet_facts(fleet: Fleet, given: IntArray) -> dict[str, Facts]:
    """By job; `given` is the candidate that each gets, (J,), -1 for nothing."""
    choices = fleet.choices
    held = np.where(fleet.has_held, 0, -1)
    holds = fleet.has_held & (given == 0)
    other, has_faster = _alternatives(fleet)
    rows = zip(
        fleet.jobs,
        fleet.value_of_time.tolist(),
        choices.why,
        fleet.work.tolist(),
        _options(fleet, held),
        _options(fleet, given, _changes(fleet, given)),
        _options(fleet, choices.target),
        _options(fleet, np.where(holds, other, -1), _changes(fleet, other)),
        has_faster.tolist(),
        strict=True,
    )
    found = {}
    for job, value, why, work, kept, gets, wished, best, is_faster in rows:
        target = None if gets is None else Allocation(*gets.size)
        found[job.id] = Facts(
            job=job,
            aim=Aim(value),
            why=why,
            work=work,
            target=job.held if target == job.held else target,
            held=kept,
            given=gets,
            wished=wished,
            other=best,
            has_faster=is_faster,
        )
    return found


def _alternatives(fleet: Fleet) -> tuple[IntArray, BoolArray]:
    """The best beside what is held, of the faster ones if any is, and whether any is, (J,)."""
    others = fleet.lists.allowed.copy()
    others[:, 0] &= ~fleet.has_held
    faster = others & (fleet.rate > fleet.rate[:, :1])
    has_faster: BoolArray = faster.max(axis=1)
    among = np.where(has_faster[:, None], faster, others)
    best = np.where(among, fleet.choices.expected_usd, np.inf).argmin(axis=1)
    return np.where(among.max(axis=1), best, -1), has_faster


def _changes(fleet: Fleet, columns: IntArray) -> list[Change]:
    """From what each job holds to a candidate of it."""
    at = np.arange(len(columns)), np.maximum(columns, 0)
    taken, value, has = fleet.taken, fleet.value_of_time, fleet.has_held
    price, works_on = fleet.lists.usd_per_second[at], taken.works_on[at]
    idle_usd = np.where(works_on, 0.0, taken.ready_seconds[at]) * value
    paused_usd = taken.pause_seconds[at] * (price + value)
    rows = zip(
        np.where(has, fleet.rate[:, 0], 0.0).tolist(),
        fleet.rate[at].tolist(),
        np.where(has, fleet.lists.usd_per_second[:, 0], 0.0).tolist(),
        price.tolist(),
        value.tolist(),
        taken.ready_seconds[at].tolist(),
        works_on.tolist(),
        (taken.boot_usd[at] + idle_usd + paused_usd).tolist(),
        strict=True,
    )
    return [Change(*row) for row in rows]


def _options(fleet: Fleet, columns: IntArray, changes: Sequence[Change] | None = None) -> _Options:
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
        changes if changes else repeat(None, len(columns)),
        strict=True,
    )
    return [Option(offers[offer], *row) if exists else None for exists, offer, *row in rows]
