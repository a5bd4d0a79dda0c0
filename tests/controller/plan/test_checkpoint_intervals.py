from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.controller.plan.checkpoint_intervals import checkpoint_intervals
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.job import (
    CheckpointSpec,
    InstanceBounds,
    JobPhase,
    JobRecord,
    JobSpec,
    ParallelismSpec,
)
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import CheckpointStatus, TrainingReport
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts
from tests.controller.world import World
from tests.economics.cases import NOW, job, offer

BOUNDS = BatchBounds(32, 32, 32, False)


def record(checkpoint: CheckpointStatus, interval_seconds: float | None = None) -> JobRecord:
    report = TrainingReport(
        step=100,
        epoch=0,
        progress_examples=3200.0,
        total_examples=None,
        batch=Batch(32, 32, 0),
        bounds=BOUNDS,
        replicas=1,
        devices=1,
        learning_rate=0.1,
        parameter_bytes=1000,
        checkpoint=checkpoint,
    )
    wanted = JobSpec("resnet", ("train",), checkpoint=CheckpointSpec(None, interval_seconds))
    return JobRecord("resnet", 1, wanted, JobPhase.RUNNING, 0.0, report=report)


def on_spot(
    reclaims_per_hour: float | None,
    instances: int = 1,
    minimum: int = 1,
    pause_seconds: float = 1.0,
) -> JobSnapshot:
    return job(
        held=Allocation("spot", instances, 1),
        instances=InstanceBounds(minimum, 8),
        held_reclaims_per_hour=reclaims_per_hour,
        switching=SwitchingCosts(1.0, 3.0, checkpoint_seconds=pause_seconds),
    )


WRITTEN = CheckpointStatus(step=90, seconds=2.0, bytes=10, pause_seconds=1.0)


NEAR = offer("spot", "0.36", reclaims_per_hour=0.5)


def at(one: JobSnapshot, spot: Offer = NEAR) -> Snapshot:
    return Snapshot(NOW, (spot,), (), (one,))


def interval(one: JobSnapshot, written: CheckpointStatus = WRITTEN) -> float | None:
    return checkpoint_intervals([record(written)], at(one)).get("resnet")


def test_it_is_the_square_root_of_twice_the_pause_and_the_life_to_a_part_of_a_doubling() -> None:
    for per_hour in (0.2, 0.5, 2.0):
        found = interval(on_spot(per_hour))
        assert found == pytest.approx(math.sqrt(2 * 1.0 * 3600 / per_hour), rel=0.1)
    near = {interval(on_spot(0.2 * (1 + 0.001 * step))) for step in range(40)}
    assert len(near) <= 2, "what is no news is not told"


def test_any_instance_counts_where_all_are_needed_and_one_where_the_others_go_on() -> None:
    one, four = on_spot(0.5), on_spot(0.5, instances=4, minimum=4)
    assert interval(four) == pytest.approx((interval(one) or 0) / 2, rel=0.1)
    assert interval(on_spot(0.5, instances=4)) == interval(one)


def test_a_gang_is_lost_with_any_of_its_instances() -> None:
    """One gang needs all its instances; of two, the loss of the other one counts."""
    shard = ParallelismSpec(shard=4)
    alone = replace(on_spot(0.5, instances=4), parallelism=shard)
    two = replace(on_spot(0.5, instances=8), parallelism=shard)
    assert interval(alone) == interval(on_spot(0.5, instances=4, minimum=4))
    assert interval(two) == interval(alone)
    needs_both = replace(on_spot(0.5, instances=8, minimum=8), parallelism=shard)
    assert interval(needs_both) == interval(on_spot(0.5, instances=8, minimum=8))


def test_nothing_is_told_without_a_hazard_a_measurement_or_where_the_owner_has_said() -> None:
    for per_hour in (None, 0.0):
        assert interval(on_spot(per_hour)) is None
    assert interval(on_spot(0.5, pause_seconds=0.0)) is None
    unmeasured = replace(record(WRITTEN), report=None)
    assert checkpoint_intervals([unmeasured], at(on_spot(0.5))) == {}
    own = record(WRITTEN, interval_seconds=900.0)
    assert checkpoint_intervals([own], at(on_spot(0.5))) == {}


def test_what_its_cloud_wants_back_has_it_save_as_often_as_any() -> None:
    told = checkpoint_intervals([record(WRITTEN)], at(on_spot(0.01)), {"resnet"})
    assert told == {"resnet": 30.0}


def test_it_stays_within_reason() -> None:
    assert interval(on_spot(5.0, pause_seconds=0.01)) == 30.0
    assert interval(on_spot(0.001, pause_seconds=10.0)) == 3600.0
    slow = replace(WRITTEN, seconds=60.0)
    assert interval(on_spot(5.0), slow) == pytest.approx(600.0, rel=0.1), "it has to be written"


def test_until_a_move_has_come_about_its_saves_are_sent_from_where_it_trains() -> None:
    """Price saves in the network where the job trains, though it has ordered elsewhere."""
    firm = offer("near")
    far = offer("far", upload_usd_per_gb=Decimal("0.12"))
    costs = SwitchingCosts(1.0, 3.0, checkpoint_seconds=1.0, checkpoint_bytes=10e9)
    moves = job(
        held=Allocation("far", 1, 1),
        trained=Allocation("near", 1, 1),
        held_reclaims_per_hour=0.0,
        switching=costs,
    )
    moment = Snapshot(NOW, (firm, far), (), (moves,))
    assert checkpoint_intervals([record(WRITTEN)], moment) == {}
    there = replace(moves, trained=moves.held)
    moment = Snapshot(NOW, (firm, far), (), (there,))
    assert checkpoint_intervals([record(WRITTEN)], moment) == {"resnet": 3600.0}


def test_a_controller_tells_nothing_of_what_is_not_reclaimed(world: World) -> None:
    name = world.submit()
    world.set_target(name, 1)
    world.tick(6)
    assert world.training(name)
    assert world.controller.status.checkpoint_intervals == {}


def test_what_is_sent_by_the_gigabyte_is_saved_less_often_and_no_longer_than_an_hour() -> None:
    """10 GB at $0.12 are $1.20, for which the instance could be had for 12,000 s."""
    far = replace(NEAR, upload_usd_per_gb=Decimal("0.12"))
    big = on_spot(0.5)
    big = replace(big, switching=replace(big.switching, checkpoint_bytes=10e9))
    assert checkpoint_intervals([record(WRITTEN)], at(big, far)) == {"resnet": 3600.0}
    small = replace(big, switching=replace(big.switching, checkpoint_bytes=10e6))
    (near,) = checkpoint_intervals([record(WRITTEN)], at(small)).values()
    (sent,) = checkpoint_intervals([record(WRITTEN)], at(small, far)).values()
    assert sent == pytest.approx(near * math.sqrt(13), rel=0.1), "1 s more counts as 13"
    firm = replace(big, held_reclaims_per_hour=0.0)
    assert checkpoint_intervals([record(WRITTEN)], at(firm, far)) == {"resnet": 3600.0}
