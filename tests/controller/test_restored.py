"""A controller that was restored from a backup takes over the fleet of the lost one."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.backup.making import make_backup
from autoscaler.backup.restoring import restore_backup
from autoscaler.domain.instance import JOB_TAG, HeldInstance
from autoscaler.ledger.bill import amount
from autoscaler.ledger.ledger import Ledger
from autoscaler.service.access.authentication import load_key
from autoscaler.state_directory import let_owner_in
from tests.controller.world import World


@pytest.fixture
def lost(tmp_path: Path, template: Path) -> World:
    """Return a deployment whose job `old` trains on two instances."""
    directory = tmp_path / "lost"
    directory.mkdir()
    world = World(directory, template=template)
    load_key(directory / "secret.key")
    let_owner_in(directory, "http://10.0.0.7:8470")
    world.submit("old")
    world.set_target("old", 2)
    world.tick(10)
    assert len(world.training("old")) == 2
    return world


def restored_after(lost: World, directory: Path, targets: dict[str, int]) -> World:
    """Back up, let the lost controller reach `targets` of old and new jobs, and restore.

    The lost controller dies before the restored one starts. The cloud goes on.
    """
    state = directory / "lost"
    make_backup(directory / "a.backup", state, None, lost.clock.now())
    for job, instances in targets.items():
        if job != "old":
            lost.submit(job)
        lost.set_target(job, instances)
    lost.tick(10)
    assert {job: len(lost.training(job)) for job in targets} == targets
    lost.store.close()
    restore_backup(directory / "a.backup", directory / "restored", None, lost.clock.now())
    world = World(directory / "restored")
    world.clock, world.cloud = lost.clock, lost.cloud
    world.store.close()
    world.restart()
    return world


def unknown_usd(world: World) -> Decimal:
    """Return what the cloud billed for instances that are not in the restored store."""
    known = {held.cloud_id for job in world.store.jobs.all() for held in held_ever(world, job.id)}
    return sum(
        (
            amount(Decimal("0.10"), instance.ended_seconds - (instance.launched_seconds or 0.0))
            for instance in world.cloud.instances()
            if instance.id not in known and instance.ended_seconds is not None
        ),
        Decimal(0),
    )


def held_ever(world: World, job: str) -> tuple[HeldInstance, ...]:
    return world.store.instances.of_job(job, include_ended=True)


def assert_ledger_lacks_only_unknown(world: World) -> None:
    known_usd = Ledger(world.store.ledger.entries()).total(world.clock.now())
    gap_usd = world.cloud.billed_usd() - known_usd
    assert gap_usd > 0
    assert abs(gap_usd - unknown_usd(world)) < Decimal("1e-6")


def test_jobs_go_on_and_later_instances_end(lost: World, tmp_path: Path) -> None:
    world = restored_after(lost, tmp_path, {"late": 1, "old": 3})
    running = {instance.id for instance in world.cloud.running()}
    kept = {held.cloud_id for held in world.store.instances.alive()}
    assert (len(running), len(kept)) == (4, 2)
    world.set_target("old", 2)
    world.tick(15)
    assert {held.cloud_id for held in world.training("old")} == kept
    assert {instance.id for instance in world.cloud.running()} == kept
    orphans = [event for event in world.store.events.latest() if event.kind == "orphan"]
    assert {event.job for event in orphans} == {"old", "late"}
    assert {event.text.split()[0] for event in orphans} == running - kept
    assert "restored" in {event.kind for event in world.store.events.latest()}
    assert_ledger_lacks_only_unknown(world)


def test_a_launch_token_that_was_used_after_the_backup_launches_nothing_twice(
    lost: World, tmp_path: Path
) -> None:
    """The restored controller orders the third instance again: it gets the running one."""
    world = restored_after(lost, tmp_path, {"old": 3})
    before = {instance.id: instance.token for instance in world.cloud.instances()}
    world.set_target("old", 3)
    world.tick(15)
    assert len(world.training("old")) == 3
    assert {instance.id: instance.token for instance in world.cloud.instances()} == before
    world.assert_nothing_leaked()


def test_a_token_whose_instance_was_ended_as_an_orphan_is_replaced(
    lost: World, tmp_path: Path
) -> None:
    world = restored_after(lost, tmp_path, {"old": 3})
    world.set_target("old", 2)
    world.tick(15)
    assert len(world.cloud.running()) == 2
    world.set_target("old", 3)
    world.tick(20)
    assert len(world.training("old")) == 3
    assert len(world.cloud.running()) == 3
    tokens = [instance.token for instance in world.cloud.instances()]
    assert len(tokens) == len(set(tokens)) == 4


def test_jobs_of_after_the_backup_can_be_submitted_again(lost: World, tmp_path: Path) -> None:
    world = restored_after(lost, tmp_path, {"late": 1})
    assert [instance.tags[JOB_TAG] for instance in world.cloud.running()] == ["old", "old", "late"]
    world.tick(15)
    assert [job.id for job in world.store.jobs.all()] == ["old"]
    assert len(world.cloud.running()) == 2
    world.submit("late")
    world.set_target("late", 1)
    world.tick(20)
    assert len(world.training("late")) == 1
    assert len(world.cloud.running()) == 3
