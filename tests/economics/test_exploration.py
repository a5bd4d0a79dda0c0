from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.exploration import (
    MOST_LOOKS,
    expected_cost,
    side_look,
    surely_better,
    worth_starting_on,
)
from autoscaler.economics.switching import cost_to_finish, cost_with_way_back
from tests.economics.cases import LARGE, SMALL, THETA, devices, job, model, offer, snapshot
from tests.economics.strategies import snapshots
from tests.economics.test_switching import ground_of

HELD = Allocation("local-small", 1, 1)
CARD = offer("card", "0.30", kind="card", boot_seconds=60.0)


@given(snapshots(draws=6, all_measured=False), st.floats(0.0, 0.01))
def test_optimism_comes_from_the_way_back_alone(moment: Snapshot, value: float) -> None:
    (one,) = moment.jobs
    at = ground_of(one, moment)
    every = at.candidates
    cost = cost_to_finish(at, value, 1e4)
    if every.held is None:
        assert expected_cost(every, cost, None) == pytest.approx(cost.mean(axis=0))
        return
    back = cost_with_way_back(at, value, 1e4)
    expected = expected_cost(every, cost, back)
    mean = cost.mean(axis=0)
    assert (expected <= mean * (1 + 1e-12)).all()
    assert expected[every.measured] == pytest.approx(mean[every.measured])
    by_hand = [
        sum(min(c, b) for c, b in zip(cost[:, i], back[:, i], strict=True)) / 6
        for i in range(len(every))
    ]
    assert expected[~every.measured] == pytest.approx(np.array(by_hand)[~every.measured])


def test_a_change_between_measured_sizes_must_pay_in_most_draws() -> None:
    one = job(held=HELD, models=model(draws=10))
    every = ground_of(one, snapshot(one, offers=(SMALL,))).candidates
    cost = np.ones((10, len(every)))
    cost[:5, 1] = 0.9
    cost[:6, 2] = 0.9
    assert surely_better(every, cost).tolist() == [False, False, True, False]
    unmeasured = replace(every, measured=np.array([True, False, True, True]))
    assert surely_better(unmeasured, cost).tolist() == [False, True, True, False]
    nowhere = replace(every, measured=np.array([False, True, True, True]))
    assert surely_better(nowhere, cost).all()


def started_on(value_usd_per_hour: float, *offers: str) -> list[str]:
    one = job(models=model(measured=()))
    every = ground_of(one, snapshot(one, offers=(SMALL, LARGE, replace(SMALL, id="z")))).candidates
    if offers:
        every = replace(
            every, allowed=np.isin([o.id for o in every.offers], offers)[every.sizes.offer]
        )
    worth = worth_starting_on(every, value_usd_per_hour / 3600)
    return [str(every.allocation(int(index))) for index in np.nonzero(worth)[0]]


def test_a_job_starts_on_the_cheapest_unless_waiting_costs_more() -> None:
    cheapest = ["1 x local-small", "1 x z"]
    assert started_on(0.0) == cheapest
    assert started_on(0.08) == cheapest
    assert started_on(0.10) == ["1 x local-large", "1 x local-large", *cheapest]
    assert started_on(100.0) == started_on(0.10)
    assert started_on(0.0, "local-large") == ["1 x local-large", "1 x local-large"]


def looked_at(one: JobSnapshot, moment: Snapshot, value: float = 1.0 / 3600) -> str | None:
    at = ground_of(one, moment)
    found = side_look(at, one, cost_to_finish(at, value, one.remaining_examples or 0.0))
    return None if found is None else str(at.candidates.allocation(found))


def unsure(kind: str = "card", spread: float = 1.5) -> JobSnapshot:
    """A job that knows its core, and nothing but the prior of the other kind."""
    cards = model(THETA, kind, measured=(), draws=32, spread=spread)
    return job(
        held=HELD,
        models={"core": model(draws=32), kind: cards},
        remaining_examples=3e6,
    )


def test_a_look_at_another_kind_is_bought_where_knowing_it_saves_more() -> None:
    one = unsure()
    assert looked_at(one, snapshot(one, offers=(SMALL, CARD))) == "1 x card"


def test_no_look_without_doubt_time_room_or_need() -> None:
    one = unsure()
    both = (SMALL, CARD)
    assert looked_at(unsure(spread=0.0), snapshot(offers=both)) is None
    short = replace(one, remaining_examples=3000.0)
    assert looked_at(short, snapshot(short, offers=both)) is None
    assert looked_at(one, snapshot(one, offers=both, limits=[devices(1)])) is None
    known = replace(one, models={"core": model(draws=32), "card": model(kind="card", draws=32)})
    assert looked_at(known, snapshot(known, offers=both)) is None
    assert looked_at(replace(one, held=None), snapshot(offers=both)) is None


@given(snapshots(draws=6, all_measured=False), st.integers(0, 6))
def test_there_are_never_more_than_three_looks(moment: Snapshot, looks: int) -> None:
    one = replace(moment.jobs[0], looks=looks)
    if looked_at(one, moment) is not None:
        assert looks < MOST_LOOKS == 3


def test_a_look_pays_at_least_the_minimum_that_is_billed() -> None:
    one = unsure()
    assert looked_at(one, snapshot(one, offers=(SMALL, CARD))) is not None
    dear = replace(CARD, minimum_billed_seconds=10_000_000)
    assert looked_at(one, snapshot(one, offers=(SMALL, dear))) is None


def test_a_slow_start_is_no_ground_for_a_look() -> None:
    slow = ThroughputParameters(0.0, 1.0, 0.02, 0.02, 0.02, 0.02, 1.0)
    one = replace(
        unsure(),
        models={
            "core": model(draws=32),
            "card": model(slow, "card", (), 32, 0.3),
        },
    )
    assert looked_at(one, snapshot(one, offers=(SMALL, CARD))) is None
