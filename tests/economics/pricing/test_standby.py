"""Cost of changes with old instances on standby, and of measurements that leave them there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import JobSnapshot, SwitchingCosts
from autoscaler.economics.allocation.candidates import candidates
from autoscaler.economics.choice.demands import Demand, demand
from autoscaler.economics.choice.exploration import fallback_allocations
from autoscaler.economics.choice.switching import cost_to_finish, cost_via_measurement
from autoscaler.economics.fleets.fleet import fleets
from autoscaler.economics.pricing.objectives import MOST_TIMES_DEAREST
from autoscaler.economics.supply.supply import supply_of
from tests.economics.cases import job, snapshot

TWO = Allocation("local-small", 2, 1)
ONE_LARGE = Allocation("local-large", 1, 2)


def wished(job_snapshot: JobSnapshot) -> Demand:
    moment = snapshot(job_snapshot)
    supply = supply_of(moment)
    return demand(job_snapshot, supply, supply.maximum - supply.uses([job_snapshot.held]))


def test_what_stands_by_needs_no_boot() -> None:
    job_snapshot = job(held=ONE_LARGE, standby=TWO)
    at = wished(job_snapshot).at
    taken, every = at.from_held(0.0), at.candidates
    for instances, share in ((1, 0.0), (2, 0.0), (3, 1 / 3), (4, 2 / 4)):
        index = every.index(Allocation("local-small", instances, 1))
        plain = wished(replace(job_snapshot, standby=None)).at.from_held(0.0)
        assert taken.boot_usd[index] == pytest.approx(share * plain.boot_usd[index])
        assert taken.new_share[index] == pytest.approx(share)
        assert taken.ready_seconds[index] == (0.0 if share == 0.0 else plain.ready_seconds[index])
        assert taken.trains_during_boot[index]
    other = every.index(Allocation("local-large", 2, 2))
    assert taken.boot_usd[other] == plain.boot_usd[other] > 0


def test_what_stands_by_of_an_offer_that_is_gone_counts_for_nothing() -> None:
    job_snapshot = job(held=ONE_LARGE, standby=Allocation("withdrawn", 2, 1))
    plain = wished(replace(job_snapshot, standby=None)).at.from_held(0.0)
    np.testing.assert_array_equal(wished(job_snapshot).at.from_held(0.0).boot_usd, plain.boot_usd)


def back_usd(job_snapshot: JobSnapshot, target: Allocation) -> float:
    """Return the cost at value of time 0 of measuring at a target and going back."""
    at = wished(job_snapshot).at
    cost = cost_to_finish(at, 0.0, 9000.0)
    index = at.candidates.index(target)
    return float(
        cost_via_measurement(at, 0.0, 9000.0, fallback_allocations(at.candidates, cost))[0, index]
    )


def test_the_way_back_from_another_kind_costs_standby_in_place_of_a_boot() -> None:
    job_snapshot = job(held=TWO, switching=SwitchingCosts(1.0, 3.0, measure_seconds=30.0))
    trial = replace(job_snapshot, study="search")
    saved_usd = back_usd(trial, ONE_LARGE) - back_usd(job_snapshot, ONE_LARGE)
    boot_usd, standby_usd = 2 * 0.10 / 3600 * 6.0, 2 * 0.10 / 3600 * 30.0
    every = wished(job_snapshot).at.candidates
    held, index = every.held, every.index(ONE_LARGE)
    # During the boot of the small ones, 6 s, the large one is paid for and trains.
    kept_on_usd = 6.0 * 0.19 / 3600
    done = 6.0 * float(every.goodput[0, index])
    spared_usd = done * float(every.usd_per_second[held] * every.seconds_per_example[0, held])
    assert saved_usd == pytest.approx(boot_usd - standby_usd + kept_on_usd - spared_usd)


def test_the_way_back_on_the_same_offer_is_as_it_was() -> None:
    job_snapshot = job(held=TWO)
    four = Allocation("local-small", 4, 1)
    assert back_usd(job_snapshot, four) == back_usd(replace(job_snapshot, study="search"), four)


def test_a_fleet_s_job_counts_standby_as_one_alone() -> None:
    standing = [
        job("a", held=ONE_LARGE, standby=TWO),
        job("b", held=ONE_LARGE),
        job("c", held=TWO, standby=ONE_LARGE),
    ]
    moment = snapshot(*standing)
    supply = supply_of(moment)
    compared = 0
    for fleet in fleets(standing, supply, supply.maximum, MOST_TIMES_DEAREST):
        taken = fleet.switches(None)
        for row, job_snapshot in enumerate(fleet.jobs):
            job_candidates = candidates(job_snapshot, supply)
            alone = demand(job_snapshot, supply, supply.maximum).at.from_held(None)
            for column in np.flatnonzero(fleet.lists.exists[row]).tolist():
                index = job_candidates.sizes.index(
                    int(fleet.lists.offer[row, column]),
                    int(fleet.lists.instances[row, column]),
                    int(fleet.lists.devices_used[row, column]),
                )
                for name in ("ready_seconds", "boot_usd", "new_share", "trains_during_boot"):
                    assert getattr(taken, name)[row, column] == pytest.approx(
                        getattr(alone, name)[index]
                    ), (job_snapshot.id, job_candidates.allocation(index or 0), name)
                compared += 1
    assert compared > 10
