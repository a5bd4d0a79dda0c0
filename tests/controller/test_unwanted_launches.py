"""Launches that were ordered and are not wanted any more when their call is to be made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.act.shutdown import stop_everything
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import InsufficientCapacity, Throttled, Unavailable
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.intent import IntentKind
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import Objective
from autoscaler.store.repositories.settings import Freeze
from tests.controller.world import World


class Queue:
    """Workers that are all busy until the test runs what is queued."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def submit(self, call: Callable[[], None]) -> object:
        self.calls.append(call)
        return None

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


def stop(world: World, job: str) -> None:
    world.store.jobs.request_stop(job, world.clock.now())


def drain(world: World, job: str) -> None:
    stop_everything(world.store, world.clock.now())


def freeze(world: World, job: str) -> None:
    world.store.settings.freeze(Freeze(world.clock.now(), "ann"))


@pytest.fixture
def queue(world: World) -> Queue:
    workers = Queue()
    world.workers = workers
    world.restart()
    return workers


@pytest.mark.parametrize("end", [stop, drain])
def test_a_throttled_launch_of_what_is_stopped_is_never_made(
    world: World, end: Callable[[World, str], None]
) -> None:
    job = world.submit(maximum=4)
    world.set_target(job, 4)
    world.cloud.refusals = [Throttled("slow down", 30.0) for _ in range(4)]
    world.tick()
    assert world.cloud.launch_calls == 4
    end(world, job)
    world.tick(3)
    assert world.store.instances.alive() == ()
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    world.tick(30)
    assert world.cloud.launch_calls == 4
    assert world.cloud.instances() == []
    assert world.store.ledger.entries() == ()


@pytest.mark.parametrize("end", [stop, drain, freeze])
def test_a_launch_that_waits_for_a_worker_is_not_made_after_a_stop_or_freeze(
    world: World, queue: Queue, end: Callable[[World, str], None]
) -> None:
    job = world.submit(maximum=3)
    world.set_target(job, 3)
    world.tick()
    assert len(queue.calls) == 3
    end(world, job)
    queue.run()
    assert world.cloud.launch_calls == 0
    world.tick(2)
    queue.run()
    assert world.cloud.launch_calls == 0
    assert world.store.ledger.entries() == ()


def test_a_queued_launch_is_made_once_the_freeze_ends(world: World, queue: Queue) -> None:
    job = world.submit()
    world.set_target(job, 2)
    world.tick()
    freeze(world, job)
    queue.run()
    world.tick(2)
    world.store.settings.unfreeze()
    world.tick()
    queue.run()
    assert len(world.cloud.running()) == 2
    world.assert_nothing_leaked()


def test_a_job_that_is_stopped_while_frozen_ends_and_its_launch_is_not_made(
    world: World,
) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [Throttled("slow down", 5.0)]
    world.tick()
    freeze(world, job)
    stop(world, job)
    world.tick(3)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    world.store.settings.unfreeze()
    world.tick(8)
    assert world.cloud.launch_calls == 1


@pytest.mark.parametrize("budget", ["job", "fleet"])
def test_a_launch_is_not_made_once_a_budget_is_used_up(tmp_path: Path, budget: str) -> None:
    usd = Decimal("0.20")
    fleet_usd = usd if budget == "fleet" else None
    world = World(tmp_path, ControllerSettings(replan_seconds=0.0, fleet_usd=fleet_usd))
    objective = Objective(budget_usd=usd if budget == "job" else None)
    job = world.submit(objective=objective)
    world.set_target(job, 1)
    world.tick(6)
    assert len(world.training(job)) == 1
    queue = Queue()
    world.workers = queue
    world.restart()
    world.set_target(job, 2)
    world.tick()
    assert len(world.store.instances.of_job(job)) == 2
    world.clock.advance(2 * 3600.0)  # the first one costs more than the budget meanwhile
    queue.run()
    assert world.cloud.launch_calls == 1
    world.workers = None
    world.restart()
    world.tick(60)
    assert world.cloud.launch_calls == 1
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED


def test_what_was_launched_though_its_answer_was_lost_is_found_and_ended(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)

    def lose_the_answer(call: str) -> None:
        if call == "launch":
            raise Unavailable("the connection broke")

    world.cloud.after_call = lose_the_answer
    world.tick(agents=False)
    stop(world, job)
    world.tick(6)
    assert world.cloud.launch_calls == 1, "its list shows what came of the call"
    assert world.cloud.running() == []
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    world.assert_nothing_leaked()


def test_a_launch_of_unknown_outcome_is_dropped_when_lists_do_not_show_it(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [Unavailable("no answer")]
    world.tick()
    stop(world, job)
    world.tick(10)
    assert [held.phase for held in world.store.instances.alive()] == [InstancePhase.REQUESTED]
    world.tick(60)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    assert world.cloud.launch_calls == 1
    assert world.store.ledger.entries() == ()
    events = world.store.events.latest(job, 50)
    (dropped,) = [event for event in events if event.kind == "launch dropped"]
    assert "no listing of its cloud shows it" in dropped.text


def test_a_wanted_launch_of_unknown_outcome_is_sent_again_with_its_token(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [Unavailable("no answer"), Throttled("slow down", 3.0)]
    world.tick()
    (held,) = world.store.instances.of_job(job)
    world.tick(2)
    launch = world.store.intents.of_instance(held.id)[0]
    assert launch.sent_seconds is not None, "a refusal says nothing of the call before"
    world.tick(6)
    assert [seen.token for seen in world.cloud.running()] == [launch.token]
    assert len(world.training(job)) == 1


def test_a_launch_that_only_refusals_answered_is_dropped_unbilled(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    world.cloud.refusals = [Throttled("slow down", 2.0), InsufficientCapacity("none left")]
    world.tick(3)
    assert world.store.ledger.entries() == ()
    assert world.store.instances.alive() == ()


def test_launches_that_hang_delay_no_termination(tmp_path: Path) -> None:
    world = World(tmp_path, devices=20)
    leaves, grows = world.submit("leaves"), world.submit("grows", maximum=8)
    world.set_target(leaves, 1)
    world.tick(6)
    (held,) = world.training(leaves)
    is_answered, is_terminated = threading.Event(), threading.Event()

    def hang(call: str) -> None:
        if call == "launch":
            is_answered.wait(60.0)

    world.cloud.before_call = hang
    world.cloud.after_call = lambda call: is_terminated.set() if call == "terminate" else None
    with ThreadPoolExecutor(8) as launches, ThreadPoolExecutor(8) as terminations:
        world.workers, world.termination_workers = launches, terminations
        world.restart()
        world.set_target(grows, 8)
        world.set_target(leaves, 0)
        try:
            world.tick(2)
            assert len(world.store.instances.of_job(grows)) == 8
            assert is_terminated.wait(30.0), "its call waited for the launches"
        finally:
            is_answered.set()
    assert _terminate_error(world, held) is None


def _terminate_error(world: World, held: HeldInstance) -> str | None:
    intents = world.store.intents.of_instance(held.id)
    (terminate,) = [intent for intent in intents if intent.kind is IntentKind.TERMINATE]
    return terminate.error
