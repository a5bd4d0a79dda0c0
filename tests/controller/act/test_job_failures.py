from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autoscaler.controller.act.job_failures import QUARANTINE
from autoscaler.controller.jobs.failed_offers import FAILURE_WINDOW_SECONDS, failed_offers
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobPhase
from autoscaler.domain.report import CONSEQUENCE, Failure, FailureCategory
from tests.controller.world import World

BROKEN = FailureCategory.BROKEN_DEVICE


def train(world: World, name: str = "job", **spec: object) -> str:
    job = world.submit(name, **spec)
    world.set_target(job, 1)
    world.tick(6)
    return job


def fail(
    world: World,
    job: str,
    category: FailureCategory,
    signature: str = "boom",
    ticks: int = 6,
    **facts: object,
) -> HeldInstance:
    """Report a failure of the job's first instance, and let the controller follow it."""
    held = world.training(job)[0]
    attempt = world.store.jobs.get(job).attempt
    failure = Failure(held.id, attempt, 1, f"it raised {signature}", signature, 100)
    failure = replace(failure, category=category, **facts)  # type: ignore[arg-type]
    world.store.reports.add_failure(job, failure, world.clock.now())
    world.tick(ticks)
    return held


def texts(world: World, kind: str, job: str | None = None) -> list[str]:
    return [event.text for event in world.store.events.latest(job) if event.kind == kind]


def test_a_syntax_error_starts_once(world: World) -> None:
    job = train(world)
    fail(world, job, FailureCategory.SYNTAX)
    record = world.store.jobs.get(job)
    assert (record.phase, record.attempt) == (JobPhase.FAILED, 1)
    assert record.cause == "it raised boom (not retried, the same code would fail again)"


def test_a_broken_machine_ends_and_the_job_goes_on_another(world: World) -> None:
    job = train(world, retries=0)
    broken = fail(world, job, BROKEN, ticks=12)
    record = world.store.jobs.get(job)
    assert (record.phase, record.attempt) == (JobPhase.RUNNING, 2)
    (other,) = world.training(job)
    assert other.cloud_id != broken.cloud_id
    assert broken.cloud_id not in {instance.id for instance in world.cloud.running()}
    given_up = world.store.instances.get(broken.id).given_up_cause
    assert given_up is not None
    assert "no job gets this machine again" in given_up
    world.assert_nothing_leaked()


def test_a_broken_machine_is_not_handed_to_another_trial(world: World) -> None:
    first = train(world, "first", study="s")
    broken = fail(world, first, BROKEN, ticks=2)
    second = world.submit("second", study="s")
    world.set_target(second, 1)
    world.tick(12)
    assert broken.cloud_id not in {held.cloud_id for held in world.training(second)}


def test_an_offer_whose_machines_fail_under_several_programs_is_left_out_for_an_hour(
    world: World,
) -> None:
    one, two = train(world, "one"), train(world, "two")
    fail(world, one, BROKEN, ticks=12)
    fail(world, one, BROKEN, ticks=12)
    assert "small" not in world.store.capacity.unavailable(world.clock.now())
    fail(world, two, BROKEN, ticks=1)
    now_seconds = world.clock.now()
    assert "small" in world.store.capacity.unavailable(now_seconds)
    assert "small" not in world.store.capacity.unavailable(now_seconds + 3700.0)
    assert texts(world, QUARANTINE) == [
        "small: machines failed under several programs; not ordered for an hour"
    ]


@pytest.mark.parametrize("shared", [{"study": "s"}, {"program": "digits"}], ids=str)
def test_jobs_of_one_code_put_no_offer_into_quarantine(
    world: World, shared: Mapping[str, str]
) -> None:
    one, two = train(world, "one", **shared), train(world, "two", **shared)
    for job in (one, two, one, two):
        fail(world, job, FailureCategory.CUDA_START, ticks=20)
    assert texts(world, QUARANTINE) == []


def test_one_job_alone_puts_no_offer_into_quarantine(world: World) -> None:
    job = train(world)
    for _ in range(4):
        fail(world, job, FailureCategory.CUDA_START, ticks=20)
    assert texts(world, QUARANTINE) == []


@pytest.mark.parametrize("category", [FailureCategory.HOST_MEMORY, FailureCategory.DISK_FULL])
def test_too_little_memory_or_disk_moves_the_job_to_another_type(
    world: World, category: FailureCategory
) -> None:
    job = train(world)
    fail(world, job, category)
    record, offers = world.store.jobs.get(job), world.cloud.sold
    left_out = failed_offers(world.store, record, offers, world.clock.now())
    assert set(left_out) == {"small"}
    assert any("small left out" in text for text in texts(world, CONSEQUENCE, job))
    later_seconds = world.clock.now() + FAILURE_WINDOW_SECONDS + 1
    assert not failed_offers(world.store, record, offers, later_seconds)


def test_a_job_stays_where_no_other_offer_is_permitted(world: World) -> None:
    world.cloud.removed.add("large")
    job = train(world)
    held = fail(world, job, FailureCategory.HOST_MEMORY)
    assert [kept.id for kept in world.training(job)] == [held.id]
    record = world.store.jobs.get(job)
    assert not failed_offers(world.store, record, world.cloud.sold[:1], world.clock.now())


def test_fewer_examples_at_once_are_tried_on_the_same_devices(world: World) -> None:
    job = train(world)
    held = fail(world, job, FailureCategory.DEVICE_MEMORY, device_limit=("core", 16))
    assert [kept.id for kept in world.training(job)] == [held.id]
    assert not failed_offers(
        world.store, world.store.jobs.get(job), world.cloud.sold, world.clock.now()
    )


def test_a_failure_of_an_instance_that_is_taken_back_uses_up_no_retry(world: World) -> None:
    job = train(world, retries=0)
    held = world.training(job)[0]
    now_seconds = world.clock.now()
    world.store.instances.take_back(held.id, now_seconds + 100.0, now_seconds)
    failure = Failure(held.id, 1, 1, "lost contact", "lost contact", 100)
    world.store.reports.add_failure(job, failure, now_seconds)
    world.tick(12)
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING


def test_a_job_whose_signature_changes_each_time_ends(world: World) -> None:
    """Each failure comes after much progress, so the retries of one count are never used up."""
    job = train(world, retries=1)
    for number in range(1, 22):
        if world.store.jobs.get(job).phase.is_final:
            break
        fail(world, job, FailureCategory.EXCEPTION, f"S{number}", ticks=8, steps=1000)
    record = world.store.jobs.get(job)
    assert record.phase is JobPhase.FAILED
    assert record.cause is not None
    assert "has failed 21 times in all" in record.cause


def test_what_ended_three_jobs_of_an_owner_is_not_retried_in_the_fourth(world: World) -> None:
    for number in range(3):
        other = train(world, f"other-{number}", person="ada", retries=0)
        fail(world, other, FailureCategory.EXCEPTION)
    stranger = train(world, "stranger", person="ben")
    fail(world, stranger, FailureCategory.EXCEPTION)
    assert world.store.jobs.get(stranger).attempt == 2
    job = train(world, "fourth", person="ada")
    fail(world, job, FailureCategory.EXCEPTION)
    record = world.store.jobs.get(job)
    assert record.phase is JobPhase.FAILED
    assert record.cause is not None
    assert "3 other jobs of the owner failed in the same way in 24 h" in record.cause


def test_the_event_of_a_failure_has_its_rule_and_the_counts(world: World) -> None:
    job = train(world, person="ada")
    held = fail(world, job, FailureCategory.NETWORK)
    assert texts(world, CONSEQUENCE, job) == [
        "network, retried with back-off: the service may recover; in 24 h: 1 of this job, "
        f"1 of its owner, 1 on {held.id}, 1 on small"
    ]


@pytest.mark.parametrize(
    ("category", "facts"),
    [
        (FailureCategory.DEVICE_MEMORY, {"device_limit": ("core", 16)}),
        (FailureCategory.HOST_MEMORY, {}),
    ],
)
def test_a_job_whose_next_start_differs_is_retried_though_others_failed_alike(
    world: World, category: FailureCategory, facts: Mapping[str, object]
) -> None:
    for number in range(4):
        job = train(world, f"job-{number}", person="ada")
        fail(world, job, category, **facts)
        record = world.store.jobs.get(job)
        assert (record.phase.is_final, record.attempt) == (False, 2), record.cause
        world.set_target(job, 0)
        world.tick(6)
