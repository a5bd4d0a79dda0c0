"""Transfers of jobs in their budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.budgets.leave_limits import last_saves_usd
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase, StopReason
from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import CheckpointStatus, ReportOrigin
from autoscaler.domain.terms import StudyTerms
from autoscaler.domain.transfer import MOST_BYTES, Transfer, TransferCount
from autoscaler.ledger.ledger import Ledger
from tests.controller.budgets.test_leave_limits import REPORT
from tests.controller.cloud import offer
from tests.controller.world import World

GB = 10**9
BUDGET = Objective(budget_usd=Decimal("1.00"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.cloud.sold = (far(),)
    return world


def far(usd_per_gb: str = "0.12", name: str = "small") -> Offer:
    """Return an offer outside the network of the jobs' files."""
    upload = Decimal(usd_per_gb)
    return replace(offer(name), network="gcp/us-central1", upload_usd_per_gb=upload)


def at_work(world: World, **spec: object) -> tuple[str, HeldInstance]:
    """A job that trains on one instance."""
    job = world.submit(**spec)  # type: ignore[arg-type]
    world.set_target(job, 1)
    world.tick(6)
    (held,) = world.training(job)
    return job, held


def send(world: World, held: HeldInstance, sent_bytes: int) -> None:
    """Have an instance say that it has sent so much, and let the controller see to it."""
    count, phase = TransferCount(1.0, Transfer(sent_bytes)), InstancePhase.TRAINING
    world.store.instances.record_node(held.id, phase, world.clock.now(), None, held.job, count)
    world.tick(1)


def save(world: World, held: HeldInstance, size_bytes: int) -> None:
    """Have a job say that its checkpoints are so large."""
    status = CheckpointStatus(step=1, seconds=1.0, bytes=size_bytes)
    origin = ReportOrigin(held.id, 1, 1.0)
    world.store.reports.add(held.job, replace(REPORT, checkpoint=status), origin, 1.0)


def gigabytes_until(world: World, job: str, held: HeldInstance) -> int:
    """Return the gigabytes that the job sends before it is stopped."""

    def sent() -> Iterator[int]:
        for parts in range(1, 30):
            yield parts
            send(world, held, parts * GB)
            if world.store.jobs.get(job).phase is not JobPhase.RUNNING:
                return

    return max(sent())


def test_what_a_job_sends_uses_its_budget_up(world: World) -> None:
    job, held = at_work(world, objective=BUDGET)
    assert gigabytes_until(world, job, held) == 9, (
        "they are $1.08; the instance is next to nothing"
    )
    world.tick(6)
    record = world.store.jobs.get(job)
    assert record.phase is JobPhase.STOPPED
    assert record.cause == (
        "budget of $1.00 used up, $1.08 of it for transfers of its files: resume it with a larger "
        "budget, as objective=budget=AMOUNT"
    )
    told = [event.text for event in world.store.events.latest(job) if event.kind == "budget"]
    assert told == [record.cause]


def test_a_budget_has_room_for_the_last_save(world: World) -> None:
    """Keep money for the save that is sent when the job leaves."""
    job, held = at_work(world, objective=BUDGET)
    save(world, held, 3 * GB)
    assert gigabytes_until(world, job, held) == 6, "that leaves less than the $0.36 of a save"
    send(world, held, 8 * GB)
    world.tick(6)
    assert Ledger(world.store.ledger.entries()).spent(job, world.clock.now()) < 1


def test_what_the_trials_of_a_study_send_is_in_its_budget(world: World) -> None:
    job, held = at_work(world, study="sweep")
    world.store.studies.state("sweep", StudyTerms(objective=BUDGET))
    assert gigabytes_until(world, job, held) == 9
    assert world.store.jobs.get(job).stop_reason is StopReason.STUDY_BUDGET


def test_what_all_jobs_send_is_in_the_budget_for_everything(tmp_path: Path) -> None:
    settings = ControllerSettings(replan_seconds=0.0, fleet_usd=Decimal("1.00"))
    world = World(tmp_path, settings)
    world.cloud.sold = (far(),)
    job, held = at_work(world)
    for parts in range(9):
        send(world, held, parts * GB)
    world.tick(20)  # the ledger is added up now and then
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING
    send(world, held, 9 * GB)
    world.tick(20)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    assert "--fleet-usd" in (world.store.jobs.get(job).cause or "")


def test_what_is_sent_where_files_are_costs_no_budget_anything(tmp_path: Path) -> None:
    world = World(tmp_path)
    job, held = at_work(world, objective=BUDGET)
    save(world, held, 1000 * GB)
    send(world, held, 1000 * GB)
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING
    assert Ledger(world.store.ledger.entries()).transfers(lambda charge: charge.job) == {}


def test_the_last_save_is_sent_by_one_instance_of_each_job(world: World) -> None:
    world.cloud.sold = (far(), far("0.02", "large"))
    first, held = at_work(world)
    world.set_target(first, 2)
    second = world.submit("second")
    world.set_target(second, 1, "large")
    world.tick(6)
    (other,) = world.training(second)
    save(world, held, 10 * GB)
    save(world, other, 10 * GB)
    jobs, alive = world.store.jobs.alive(), world.store.instances.alive()
    assert len(alive) == 3
    assert last_saves_usd(jobs, alive) == Decimal("1.40")
    assert last_saves_usd(jobs[:1], alive) == Decimal("1.20")
    assert last_saves_usd(jobs, ()) == 0
    save(world, held, -GB)
    assert last_saves_usd(world.store.jobs.alive(), alive) == Decimal("0.20")
    save(world, held, 4 * MOST_BYTES)
    assert last_saves_usd(world.store.jobs.alive(), alive) > 1e8
