from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.offer import Purchase
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts
from autoscaler.economics.allocation.candidates import candidates
from autoscaler.economics.allocation.remaining import remaining_work, work_ahead
from autoscaler.economics.choice.switching import (
    FallbackAllocations,
    SwitchContext,
    Switches,
    cost_to_finish,
    cost_via_measurement,
    switches,
)
from autoscaler.economics.supply.supply import supply_of
from tests.economics import naive
from tests.economics.cases import LARGE, NOW, SMALL, devices, job, offer, snapshot
from tests.economics.strategies import snapshots

TWO = Allocation("local-small", 2, 1)


def ground_of(job_snapshot: JobSnapshot, moment: Snapshot) -> SwitchContext:
    supply = supply_of(moment)
    room = supply.maximum - supply.uses(other_job.held for other_job in moment.jobs)
    return SwitchContext(
        candidates(job_snapshot, supply),
        job_snapshot.switching,
        room,
        has_run=job_snapshot.spent_usd > 0,
    )


def change(at: SwitchContext, target: Allocation) -> Switches:
    index = at.candidates.index(target)
    assert index is not None
    return switches(at, at.candidates.held, np.array([index]))


def figures(taken: Switches) -> tuple[float, float, bool, float]:
    return (
        float(taken.ready_seconds[0]),
        float(taken.boot_usd[0]) * 3600,
        bool(taken.trains_during_boot[0]),
        float(taken.pause_seconds[0]),
    )


def test_growing_costs_the_boot_of_what_is_added_and_a_pause() -> None:
    job_snapshot = job(held=TWO)
    at = ground_of(job_snapshot, snapshot(job_snapshot))
    assert figures(change(at, Allocation("local-small", 4, 1))) == pytest.approx(
        (6.0, 2 * 0.10 * 6, True, 0.05)
    )


def test_shrinking_costs_a_pause_and_staying_nothing() -> None:
    job_snapshot = job(held=TWO)
    at = ground_of(job_snapshot, snapshot(job_snapshot))
    assert figures(change(at, Allocation("local-small", 1, 1))) == (0.0, 0.0, True, 0.05)
    assert figures(change(at, TWO)) == (0.0, 0.0, True, 0.0)


def test_moving_boots_everything_while_the_old_ones_work() -> None:
    job_snapshot = job(held=TWO)
    at = ground_of(job_snapshot, snapshot(job_snapshot))
    assert figures(change(at, Allocation("local-large", 1, 2))) == pytest.approx(
        (6.0, 0.19 * 6, True, 0.05)
    )


def test_moving_without_room_for_both_stands_still_and_starts_from_a_checkpoint() -> None:
    job_snapshot = job(held=TWO)
    at = ground_of(job_snapshot, snapshot(job_snapshot, limits=[devices(3)]))
    taken = change(at, Allocation("local-large", 1, 2))
    assert figures(taken) == pytest.approx((6.0, 0.19 * 6, False, 3.05))
    assert taken.lost_seconds == pytest.approx([9.05])
    # More instances of the same offer wait for room while the job trains.
    assert figures(change(at, Allocation("local-small", 3, 1)))[2]


def test_moving_to_another_network_goes_by_a_checkpoint_that_is_paid_for() -> None:
    """Fetch 1.5 GB on each of two instances at $0.09, with 60 s to move it and 3 s to restore."""
    far = offer("far", "0.05", network="gcp/us-central1", download_usd_per_gb=Decimal("0.09"))
    costs = SwitchingCosts(0.05, 3.0, checkpoint_bytes=1.5e9, carry_seconds=60.0)
    job_snapshot = job(held=TWO, switching=costs)
    at = ground_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL, LARGE, far)))
    to_far = Allocation("far", 2, 1)
    taken = change(at, to_far)
    assert figures(taken) == pytest.approx((6.0, 2 * 0.05 * 6 + 0.27 * 3600, True, 63.05))
    assert taken.carried_usd == pytest.approx([0.27])
    near = change(at, Allocation("local-large", 1, 2))
    assert figures(near) == pytest.approx((6.0, 0.19 * 6, True, 0.05)), "nothing of it here"
    home = ground_of(
        replace(job_snapshot, held=to_far), snapshot(job_snapshot, offers=(SMALL, LARGE, far))
    )
    assert change(home, Allocation("far", 3, 1)).carried_usd == pytest.approx([0.0]), (
        "one that joins gets the state from the others"
    )


def test_what_a_job_leaves_behind_is_sent_to_where_it_is_fetched_from() -> None:
    """Send 1.5 GB at $0.12 a GB, and fetch it twice at $0.09."""
    far = offer("far", "0.05", network="b", upload_usd_per_gb=Decimal("0.12"))
    farther = offer("farther", "0.05", network="c", download_usd_per_gb=Decimal("0.09"))
    costs = SwitchingCosts(0.05, 3.0, checkpoint_bytes=1.5e9)
    job_snapshot = job(held=Allocation("far", 2, 1), switching=costs)
    at = ground_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL, far, farther)))
    for target, usd in ((TWO, 0.18), (Allocation("farther", 2, 1), 0.18 + 0.27)):
        assert change(at, target).carried_usd == pytest.approx([usd])
    assert change(at, Allocation("far", 1, 1)).carried_usd == pytest.approx([0.0])


def test_a_script_that_starts_on_other_devices_of_its_instance_does_so_from_storage() -> None:
    ways = {"upload_usd_per_gb": Decimal("0.12"), "download_usd_per_gb": Decimal("0.09")}
    far = offer("far", "0.19", devices=2, network="b", **ways)
    costs = SwitchingCosts(0.05, 3.0, checkpoint_bytes=1e9)
    job_snapshot = job(held=Allocation("far", 1, 1), switching=costs)
    at = ground_of(job_snapshot, snapshot(job_snapshot, offers=(far,)))
    assert change(at, Allocation("far", 1, 2)).carried_usd == pytest.approx([0.21])


def test_a_start_of_what_has_run_fetches_its_checkpoint() -> None:
    far = offer("far", "0.05", network="gcp/us-central1", download_usd_per_gb=Decimal("0.09"))
    costs = SwitchingCosts(0.05, 3.0, checkpoint_bytes=1e9)
    for spent, carried in ((0.0, 0.0), (0.5, 0.09)):
        job_snapshot = job(switching=costs, spent_usd=spent)
        at = ground_of(job_snapshot, snapshot(job_snapshot, offers=(far,)))
        assert change(at, Allocation("far", 1, 1)).carried_usd == pytest.approx([carried])


def test_other_jobs_take_room_too() -> None:
    job_snapshot, other_job = job(held=Allocation("local-small", 1, 1)), job("other", held=TWO)
    target = Allocation("local-large", 1, 2)
    assert figures(
        change(ground_of(job_snapshot, snapshot(job_snapshot, limits=[devices(4)])), target)
    )[2]
    crowded = ground_of(job_snapshot, snapshot(job_snapshot, other_job, limits=[devices(4)]))
    assert not figures(change(crowded, target))[2]


def test_using_other_devices_of_an_instance_starts_again_on_it() -> None:
    job_snapshot = job(held=Allocation("local-large", 1, 1))
    at = ground_of(job_snapshot, snapshot(job_snapshot))
    assert figures(change(at, Allocation("local-large", 1, 2))) == pytest.approx(
        (0.0, 0.0, True, 3.05)
    )


def test_a_start_boots_all_and_restores_what_has_run_before() -> None:
    fresh, dropped = job(), job(spent_usd=0.1)
    target = Allocation("local-small", 2, 1)
    at = ground_of(fresh, snapshot(fresh))
    assert figures(change(at, target)) == pytest.approx((6.0, 2 * 0.10 * 6, False, 0.0))
    at = ground_of(dropped, snapshot(dropped))
    assert figures(change(at, target))[3] == 3.0


def test_measured_starts_count_before_the_offers_word() -> None:
    job_snapshot = job(held=TWO, switching=SwitchingCosts(0.05, 3.0, {"local-small": 11.0}))
    at = ground_of(job_snapshot, snapshot(job_snapshot))
    assert figures(change(at, Allocation("local-small", 3, 1)))[0] == 11.0
    assert figures(change(at, Allocation("local-large", 1, 2)))[0] == 6.0


@given(snapshots(), st.floats(0.0, 0.01))
def test_the_cost_to_finish_is_that_of_plain_loops(moment: Snapshot, value: float) -> None:
    (job_snapshot,) = moment.jobs
    at = ground_of(job_snapshot, moment)
    work = job_snapshot.remaining_examples
    assert work is not None
    costs = cost_to_finish(at, value, work)
    for index in range(len(at.candidates)):
        expected = naive.cost(job_snapshot, moment, value, work, at.candidates.allocation(index))
        assert costs[0, index] == pytest.approx(expected)


@given(snapshots(), st.floats(0.0, 0.01))
def test_the_old_instances_stop_at_once_exactly_where_working_on_is_dearer(
    moment: Snapshot, value: float
) -> None:
    (job_snapshot,) = moment.jobs
    at = ground_of(job_snapshot, moment)
    every, held, work = at.candidates, at.candidates.held, 1e6
    assume(held is not None and len(every))
    cost = cost_to_finish(at, value, work)[0]
    for index in np.flatnonzero(every.sizes.offer != every.sizes.offer[held]).tolist():
        taken = switches(at, held, np.array([index]))
        ready = float(taken.ready_seconds[0])
        here, there = (float(every.usd_per_second[size]) + value for size in (held, index))
        before, after = (float(every.rate[size]) for size in (held, index))
        common = float(taken.boot_usd[0]) + job_snapshot.switching.pause_seconds * there
        trains_during_boot = ready * here + (work - before * ready) * there / after
        stops = (
            ready * value + job_snapshot.switching.restore_seconds * there + work * there / after
        )
        target, source = (every.offers[every.sizes.offer[size]] for size in (index, held))
        if source.network == target.network:
            stops += naive.download(job_snapshot, target, int(every.sizes.instances[index]))
            stops += naive.upload(job_snapshot, source)
        else:  # another network: the change restores a checkpoint in any case
            trains_during_boot += job_snapshot.switching.restore_seconds * there
            common += job_snapshot.switching.carry_seconds * there
        if every.offers[every.sizes.offer[index]].purchase is Purchase.SPOT:
            stops = math.inf
        assert cost[index] == pytest.approx(common + min(trains_during_boot, stops), rel=1e-9)
        if not math.isclose(trains_during_boot, stops):
            changes = switches(at, held, np.array([index]), value)
            assert changes.trains_during_boot[0] == (trains_during_boot < stops)


def back_to(at: SwitchContext) -> FallbackAllocations:
    return FallbackAllocations(np.array([at.candidates.held]))


@given(snapshots(draws=5), st.floats(0.0, 0.01))
def test_the_way_back_costs_more_than_staying(moment: Snapshot, value: float) -> None:
    (job_snapshot,) = moment.jobs
    at = ground_of(job_snapshot, moment)
    held = at.candidates.held
    if held is None:
        return
    # A measurement of a worse size is a loss, if there is time to come back.
    stays = cost_to_finish(at, value, 1e9)[:, [held]]
    back = cost_via_measurement(at, value, 1e9, back_to(at))
    worse = at.candidates.goodput * (at.candidates.usd_per_second[held] + value) < (
        at.candidates.goodput[:, [held]] * (at.candidates.usd_per_second + value)
    )
    assert (back[worse] >= np.broadcast_to(stays, back.shape)[worse] * (1 - 1e-9)).all()


def test_the_way_back_by_hand() -> None:
    job_snapshot = job(held=Allocation("local-small", 1, 1), switching=SwitchingCosts(1.0, 3.0))
    at = ground_of(job_snapshot, snapshot(job_snapshot))
    index = at.candidates.index(TWO)
    value, work = 0.10 / 3600, 9000.0
    slow, fast = 100.0, naive.goodput(job_snapshot, snapshot(job_snapshot), TWO)
    # 6 s of boot at the old size, 30 s at the new size, a pause each way, the rest as before.
    done = 6 * slow + 30 * fast
    expected = 6 * 0.10 + 6 * 0.20 + 30 * 0.30 + 1 * 0.30 + 1 * 0.20
    expected += (work - done) / slow * 0.20
    back = cost_via_measurement(at, value, work, back_to(at))
    assert back[0, index] * 3600 == pytest.approx(expected)


def test_a_job_of_unknown_length_has_an_hour_or_its_age_to_go() -> None:
    job_snapshot = job(remaining_examples=None, held=Allocation("local-small", 1, 1))
    moment = snapshot(job_snapshot)
    supply = supply_of(moment)
    every = candidates(job_snapshot, supply)
    assert remaining_work(job_snapshot, supply, every) == pytest.approx(100 * 3600)
    old = replace(job_snapshot, submitted_seconds=NOW - 36000)
    assert remaining_work(old, supply, every) == pytest.approx(100 * 36000)
    assert remaining_work(replace(job_snapshot, remaining_examples=-1.0), supply, every) == 0.0
    assert remaining_work(replace(job_snapshot, remaining_examples=np.inf), supply, every) > 0


def test_decisions_count_until_they_are_usually_undone() -> None:
    job_snapshot = job(held=TWO, switching=SwitchingCosts(0.05, 3.0, dwell_seconds=10.0))
    moment = snapshot(job_snapshot, offers=(SMALL, LARGE))
    every = candidates(job_snapshot, supply_of(moment))
    expected = 10 * naive.goodput(job_snapshot, moment, TWO)
    assert work_ahead(job_snapshot, 9000.0, every) == pytest.approx(expected)
    assert work_ahead(job_snapshot, 10.0, every) == 10.0
