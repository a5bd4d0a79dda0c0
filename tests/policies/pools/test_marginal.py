from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.allocation import Placement
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.snapshot import JobSnapshot, ServiceReceived, SwitchingCosts
from autoscaler.policies.marginal.policy import MarginalPolicy
from autoscaler.policies.pools.bids import DeviceBid, bids
from autoscaler.policies.pools.pool import pool_of
from tests.conformance.pool_policy import (
    KIND,
    PoolPolicyConformance,
    assert_machines_have_the_devices,
    assert_no_needless_move,
    machine,
    machines,
    placement_of,
    placements,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import FIXED, NOW, model

# Twice the devices, twice the speed; and next to nothing from more than one.
PERFECT = ThroughputParameters(0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0)
FLAT = ThroughputParameters(0.0, 0.01, 0.31, 0.16, 0.31, 0.16, 1.0)
RESTARTING = SwitchingCosts(pause_seconds=30.0, restore_seconds=30.0)


class TestMarginalOnAPool(PoolPolicyConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> MarginalPolicy:
        return MarginalPolicy()


def elastic(name: str, theta: ThroughputParameters = PERFECT, **changes: object) -> JobSnapshot:
    return pool_job(name, models={KIND: model(theta, KIND)}, **changes)


def bid_of(job: JobSnapshot, *others: JobSnapshot, count: int = 1) -> DeviceBid:
    pool = pool_of(pool_snapshot(offers=machines(count)))
    return bids([job, *others], pool, NOW)[0]


def planned(*jobs: JobSnapshot, count: int = 2) -> dict[str, int]:
    return sizes(MarginalPolicy().plan(pool_snapshot(*jobs, offers=machines(count))))


def test_alone_the_best_size_is_worth_a_second_of_waiting_a_second() -> None:
    bid = bid_of(elastic("a"))
    assert bid.finish_price == 0.0
    assert bid.worth == pytest.approx({1: 0.25, 2: 0.5, 3: 0.75, 4: 1.0}, rel=0.05)
    heavier = bid_of(elastic("a", weight=3.0))
    assert heavier.worth == pytest.approx({k: 3.0 * v for k, v in bid.worth.items()})


def test_progress_is_dearer_for_the_job_that_ends_while_others_wait() -> None:
    short, long = elastic("short", remaining_examples=1e3), elastic("long", remaining_examples=1e6)
    for size, worth in bid_of(long, short).worth.items():
        assert bid_of(short, long).worth[size] > 1.5 * worth
    assert bid_of(long, short).finish_price == 0.0


@pytest.mark.parametrize("scale", [2.0**-9, 0.5, 8.0])
def test_how_progress_is_counted_does_not_matter(scale: float) -> None:
    """Examples that take `scale` times as long, of which there are as many fewer."""
    other = elastic("b", remaining_examples=9e3)
    slower = replace(PERFECT, beta_compute_seconds_per_example=0.01 * scale)
    here = bid_of(elastic("a", remaining_examples=7e3), other)
    there = bid_of(elastic("a", slower, remaining_examples=7e3 / scale), other)
    assert there.worth == pytest.approx(here.worth, rel=1e-6)


def test_a_change_has_its_pause_to_pay_for() -> None:
    bid = bid_of(elastic("a", switching=RESTARTING, remaining_examples=1e6))
    assert bid.worth_from(2)[2] == bid.worth[2]
    assert bid.worth_from(2)[4] == pytest.approx(0.9 * bid.worth[4])
    ends = bid_of(elastic("a", switching=RESTARTING, remaining_examples=1e4))
    assert ends.worth_from(2)[4] == pytest.approx(0.4 * ends.worth[4])
    over = bid_of(elastic("a", switching=RESTARTING, remaining_examples=1e3))
    assert over.worth_from(2)[4] == 0.0


@pytest.mark.parametrize(("measured", "most"), [((), 4), (((1, 2),), 8), (((2, 8),), 24)])
def test_a_job_grows_to_four_times_what_was_measured(
    measured: tuple[tuple[int, int], ...], most: int
) -> None:
    models = {KIND: model(PERFECT, KIND, measured=measured)}
    one = pool_job("a", models=models, instances=InstanceBounds(1, 16))
    assert planned(one, count=6) == {"a": most}


def test_a_job_stays_within_as_many_machines_as_it_may_have() -> None:
    assert planned(elastic("a", instances=InstanceBounds(1, 2)), count=6) == {"a": 8}


def test_the_short_job_goes_first_and_the_long_one_makes_use_of_the_rest() -> None:
    long, short = elastic("long", remaining_examples=1e6), elastic("short", FLAT)
    assert planned(long, short, count=1) == {"long": 3, "short": 1}
    alike = [elastic(name, remaining_examples=work) for name, work in (("a", 1e6), ("b", 1e3))]
    assert planned(*alike, count=1) == {"a": 0, "b": 4}


def test_a_running_job_is_not_stopped_for_little() -> None:
    first = elastic("first", remaining_examples=1.0e6, placement=placement_of(node_000=4))
    second = elastic("second", remaining_examples=0.9e6)
    assert planned(first, second, count=1) == {"first": 0, "second": 4}
    slow = SwitchingCosts(pause_seconds=200.0, restore_seconds=0.0)
    held = [replace(job, switching=slow) for job in (first, second)]
    assert planned(*held, count=1) == {"first": 4, "second": 0}


def test_a_job_is_taken_to_pause_no_less_than_is_usual() -> None:
    changed = elastic("changed", switching=RESTARTING, service=ServiceReceived(restarts=2))
    slow = replace(changed, switching=SwitchingCosts(pause_seconds=90.0, restore_seconds=0.0))
    new = elastic("new")
    assert bid_of(new).pause_seconds == new.switching.pause_seconds
    assert bid_of(new, changed).pause_seconds == 30.0
    assert bid_of(slow, changed, changed).pause_seconds == 90.0


def test_a_job_that_is_about_to_end_is_left_alone() -> None:
    ends = elastic(
        "ends", remaining_examples=2e3, placement=placement_of(node_000=1), switching=RESTARTING
    )
    assert planned(ends) == {"ends": 1}
    assert planned(replace(ends, remaining_examples=1e6)) == {"ends": 8}


def test_what_nobody_wants_whole_is_filled_with_those_who_make_most_of_it() -> None:
    fixed = [
        elastic(
            f"fixed-{n}", FLAT, placement=placement_of(**{f"node_{n:03}": 1}), switching=RESTARTING
        )
        for n in range(2)
    ]
    wide = elastic("wide", remaining_examples=1e6)
    found = placements(MarginalPolicy().plan(pool_snapshot(*fixed, wide)))
    assert found == {
        "fixed-0": placement_of(node_000=1),
        "fixed-1": placement_of(node_001=1),
        "wide": placement_of(node_000=3),
    }


def test_of_a_job_of_which_nothing_is_known_one_device_is_given() -> None:
    unknown = pool_job("unknown", models={}, remaining_examples=None)
    assert planned(unknown) == {"unknown": 1}


def test_a_machine_that_is_gone_is_made_up_for() -> None:
    gone = elastic("gone", placement=placement_of(node_007=4), instances=InstanceBounds(1, 1))
    assert placements(MarginalPolicy().plan(pool_snapshot(gone)))["gone"] == placement_of(
        node_000=4
    )


def test_what_two_jobs_hold_and_a_machine_no_longer_has_is_given_to_one() -> None:
    """Plan for a machine that has lost half of its devices."""
    jobs = [
        elastic(name, placement=placement_of(node_000=2), instances=InstanceBounds(1, 1))
        for name in ("a", "b")
    ]
    moment = pool_snapshot(*jobs, offers=machines(1, devices=2))
    assert_machines_have_the_devices(moment, MarginalPolicy().plan(moment))


def test_reasons_are_in_terms_of_waiting() -> None:
    moment = pool_snapshot(
        elastic("long", remaining_examples=1e6),
        elastic("short", remaining_examples=8e4),
        offers=machines(1),
    )
    assert [decision.reason for decision in MarginalPolicy().plan(moment).decisions] == [
        "wait long: every device is worth more to other jobs",
        "start short with 4 on node-000: 200 s left, worth 2 s of waiting per second, "
        "a device 0.25 when it ends",
    ]


@given(
    serial=st.lists(st.floats(0.0, 0.5), min_size=1, max_size=4),
    work=st.lists(st.floats(1e2, 1e6), min_size=4, max_size=4),
)
@settings(deadline=None, max_examples=25)
def test_on_one_machine_the_plan_is_worth_the_most_there_is(
    serial: list[float], work: list[float]
) -> None:
    """Found by trying everything, where each device more adds less."""
    jobs = [
        elastic(
            f"job-{n}",
            replace(PERFECT, alpha_compute_seconds=seconds),
            batch=replace(FIXED, initial=48),
            remaining_examples=examples,
        )
        for n, (seconds, examples) in enumerate(zip(serial, work, strict=False))
    ]
    moment = pool_snapshot(*jobs, offers=machines(1))
    tables = [{0: 0.0, **bid.worth_from(0)} for bid in bids(jobs, pool_of(moment), NOW)]
    most = max(
        sum(table[size] for table, size in zip(tables, each, strict=True))
        for each in itertools.product(*tables)
        if sum(each) <= 4
    )
    found = sizes(MarginalPolicy().plan(moment))
    got = sum(table[found[job.id]] for table, job in zip(tables, jobs, strict=True))
    assert got == pytest.approx(most)


def test_a_job_is_not_gathered_without_being_charged_for_it() -> None:
    """Count the moves, though growing and shrinking again would free a machine."""
    theta = ThroughputParameters(0.0, 0.01, 0.02, 0.02, 0.02, 0.02, 1.0)
    quick = SwitchingCosts(pause_seconds=0.05, restore_seconds=3.0)
    held = Placement((("node-001", 2), ("node-002", 2), ("node-003", 4)))
    scattered = elastic("a", theta, remaining_examples=1e3, placement=held, switching=quick)
    other = elastic("b", theta, remaining_examples=3e3)
    offers = (machine(0, devices=2), machine(1), machine(2), machine(3))
    moment = pool_snapshot(scattered, other, offers=offers)
    assert_no_needless_move(moment, MarginalPolicy().plan(moment))
