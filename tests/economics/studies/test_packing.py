from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.economics.studies.constraints import StudyConstraints
from autoscaler.economics.studies.rungs.packing import keep, pack, packing_task
from autoscaler.economics.studies.rungs.rung import Rung
from autoscaler.economics.studies.rungs.water_filling import water_fill
from autoscaler.economics.studies.trial_state import FreedInstances
from tests.economics.studies.cases import USD_PER_SECOND, rates, supply, trial

SIZES = (1, 2)
BOOT, HANDOVER = 150.0, 10.0


def cheapest(works: list[float], deadline: float) -> float:
    """Over every way to share lanes of every size: a boot each, a hand-over between trials."""
    best = np.inf
    lanes = range(len(works))
    for lane_of in product(lanes, repeat=len(works)):
        for sizes in product(range(len(SIZES)), repeat=len(works)):
            usd, latest = 0.0, 0.0
            for lane in set(lane_of):
                rate = rates(1.0, 0.1, sizes=SIZES)[0, sizes[lane]]
                mine = [w / rate for w, at in zip(works, lane_of, strict=True) if at == lane]
                seconds = BOOT + sum(mine) + HANDOVER * (len(mine) - 1)
                usd += seconds * SIZES[sizes[lane]] * USD_PER_SECOND
                latest = max(latest, seconds)
            if latest <= deadline:
                best = min(best, usd)
    return float(best)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(100.0, 2000.0), min_size=1, max_size=3), st.floats(0.1, 2.0))
def test_waiting_trials_share_lanes_about_as_well_as_can_be(
    works: list[float], hours: float
) -> None:
    """A rule of thumb: a fifth above the best of all ways at most, on small rungs."""
    trials = tuple(trial(f"t{i}", work, sizes=SIZES) for i, work in enumerate(works))
    constraints = StudyConstraints(deadline_seconds=hours * 3600.0)
    prospects = water_fill(Rung(trials), supply(sizes=SIZES), constraints)
    found, best = prospects.chosen, cheapest(works, hours * 3600.0)
    if prospects.chance == 1.0:
        assert best * (1 - 1e-9) <= found.usd[0] <= best * 1.2
    else:
        assert np.isinf(best) or found.seconds[0] <= hours * 3600.0 * 1.1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(100.0, 5000.0), min_size=1, max_size=5), st.integers(0, 3))
def test_a_nearer_barrier_is_never_cheaper(works: list[float], free: int) -> None:
    """Pack training trials with free and booting instances to grow by."""
    trials = tuple(trial(f"t{i}", work, held=0) for i, work in enumerate(works))
    task = packing_task(Rung(trials, (FreedInstances("gpu", free),)), supply(), 0.8)
    packings = [pack(task, barrier) for barrier in (500.0, 1000.0, 2000.0, 4000.0, 8000.0)]
    costs = [float(one.usd.mean()) for one in packings if one is not None]
    if not free:
        assert all(far <= near * (1 + 1e-9) for near, far in pairwise(costs))
    for packing, barrier in zip(packings, (500.0, 1000.0, 2000.0, 4000.0, 8000.0), strict=True):
        assert packing is None or packing.seconds.max() <= barrier * (1 + 1e-6)


def test_free_instances_are_taken_once() -> None:
    trials = tuple(trial(f"t{i}", 3000.0) for i in range(3))
    task = packing_task(Rung(trials, (FreedInstances("gpu", 2),)), supply(), 0.8)
    packing = pack(task, 3200.0)
    assert packing is not None
    beginnings = sorted(assignment.source.value for assignment in packing.assignments)
    assert beginnings == ["freed", "freed", "new"]
    assert packing.unused == {}


def test_to_keep_all_as_it_is_all_must_train() -> None:
    rung = Rung((trial("a", 100.0, held=1), trial("b", 100.0)))
    assert keep(packing_task(rung, supply(), 0.8)) is None
    alone = keep(packing_task(Rung(rung.trials[:1]), supply(), 0.8))
    assert alone is not None
    assert alone.assignments[0].size == 1


def test_trials_first_use_instances_that_are_paid_for() -> None:
    free = FreedInstances("gpu", 1), FreedInstances("gpu", 1, paid_seconds=900.0)
    task = packing_task(Rung((trial("t", 500.0),), free), supply(), 0.8)
    packing = pack(task, 5000.0)
    assert packing is not None
    assert packing.usd[0] == 0.0
    holds = replace(trial("old", 100.0, held=0), paid_seconds=900.0)
    packing = pack(packing_task(Rung((holds, trial("new", 500.0))), supply(), 0.8), 5000.0)
    assert packing is not None
    assert packing.assignments[1].after == 0
    assert packing.usd[0] == 0.0
