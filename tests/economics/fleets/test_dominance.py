from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import Snapshot
from autoscaler.economics.choice.demands import Demand, demand
from autoscaler.economics.fleets.dominance import prune_dominated
from autoscaler.economics.supply.sizes import permitted_sizes
from autoscaler.economics.supply.supply import Supply, supply_of
from autoscaler.goodput.throughput import FloatArray
from tests.economics.cases import NOW, SMALL, devices, job, snapshot
from tests.economics.strategies import snapshots


def wish_in(moment: Snapshot) -> Demand:
    supply = supply_of(moment)
    (job_snapshot,) = moment.jobs
    return demand(job_snapshot, supply, supply.maximum - supply.uses([job_snapshot.held]))


@given(snapshots(), st.sampled_from([1.0, 1.5, 2.5, 5.0, 20.0]), st.data())
def test_what_is_best_within_any_share_of_a_limit_is_kept(
    moment: Snapshot, times: float, data: st.DataObject
) -> None:
    limits = moment.limits or (devices(64),)
    whole = wish_in(replace(moment, limits=limits))
    fewer = prune_dominated(whole)
    if not whole.eligible.any() or whole.requirement.stages is not None:
        assert fewer is whole
        return
    limit = data.draw(st.integers(0, len(limits) - 1))
    least = _prices_of_progress(whole)[whole.eligible].min()
    most_use = data.draw(st.sampled_from(sorted(_uses(whole, limit)[whole.eligible].tolist())))

    def best(choice: Demand) -> float:
        every = choice.at.candidates
        within = choice.eligible & (_uses(choice, limit) <= most_use)
        return float((times * least * every.rate - every.usd_per_second)[within].max())

    assert best(fewer) == best(whole)


@given(snapshots())
def test_what_is_held_and_what_is_wished_are_kept(moment: Snapshot) -> None:
    whole = wish_in(moment)
    fewer = prune_dominated(whole)
    for before, after in (
        (whole.at.candidates.held, fewer.at.candidates.held),
        (whole.target, fewer.target),
    ):
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            every, few = whole.at.candidates, fewer.at.candidates
            assert few.allocation(after) == every.allocation(before)
            assert fewer.expected_usd[after] == whole.expected_usd[before]
            assert np.array_equal(fewer.cost[:, after], whole.cost[:, before])


def test_sizes_of_a_fleet_lie_on_a_ladder_with_what_is_held() -> None:
    held = Allocation("local-small", 29, 1)
    job_snapshot = job(held=held, instances=replace(job().instances, maximum=61))
    supply = supply_of(snapshot(job_snapshot, offers=(SMALL,)))
    fleet = Supply(replace(supply.terms, is_fleet=True), NOW, 60.0)
    assert permitted_sizes(job_snapshot, supply).instances.tolist() == list(range(1, 62))
    ladder = permitted_sizes(job_snapshot, fleet).instances.tolist()
    assert ladder[:8] == list(range(1, 9))
    assert {29, 61} <= set(ladder)
    assert len(ladder) < 21
    assert all(after <= 1.26 * before + 1 for before, after in pairwise(ladder))


def _uses(choice: Demand, limit: int) -> FloatArray:
    uses: FloatArray = choice.at.candidates.uses[limit]
    return uses


def _prices_of_progress(choice: Demand) -> FloatArray:
    every = choice.at.candidates
    price: FloatArray = (every.usd_per_second + choice.bid) / every.rate
    return price
