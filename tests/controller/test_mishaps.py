"""Effects of clouds, agents, lighthouses and its own absence on a controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from autoscaler.controller.act.intents import light
from autoscaler.controller.act.job_lifecycle import LighthouseRunner
from autoscaler.controller.offers.false_starts import false_starts, false_starts_everywhere
from autoscaler.domain.errors import InsufficientCapacity, Unavailable
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import CloudInstance, Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.report import Failure, StepObservation
from tests.controller.cloud import offer
from tests.controller.world import World


def _trains(world: World, instances: int = 2, **spec: object) -> str:
    job = world.submit(**spec)
    world.set_target(job, instances)
    world.tick(6)
    assert len(world.training(job)) == instances
    return job


def _events(world: World, kind: str) -> list[str]:
    return [event.text for event in world.store.events.latest() if event.kind == kind]


@pytest.mark.parametrize("is_restarted", [True, False])
def test_silence_counts_only_while_somebody_listens(world: World, is_restarted: bool) -> None:
    job = _trains(world)
    world.set_target(job, 3)
    world.tick(1)
    world.clock.advance(3600.0)
    if is_restarted:
        world.restart()
    world.tick(4, seconds=20.0, agents=False)
    held = world.store.instances.of_job(job)
    assert [each.desired for each in held] == [Desired.PRESENT] * 3
    world.tick(4, seconds=20.0, agents=False)
    assert len(_events(world, "instance given up")) == 2, "those that had spoken, and fell silent"


def test_a_lighthouse_that_has_gone_out_is_lit_again(world: World) -> None:
    job = _trains(world)
    world.lighthouses.running.clear()
    world.tick(3)
    assert world.lighthouses.running == {job}
    world.lighthouses.ensure = lambda job: "http://elsewhere"  # type: ignore[method-assign]
    world.tick(3)
    assert world.store.jobs.get(job).lighthouse == "http://elsewhere"


def test_one_look_at_a_lighthouse_is_under_way_at_a_time(world: World) -> None:
    waiting: list[Callable[[], None]] = []

    class Later:
        def submit(self, call: Callable[[], None]) -> None:
            waiting.append(call)

    job = world.submit()
    runner = LighthouseRunner(world.store, world.lighthouses, Later())
    runner.ensure_running(job, 100.0)
    runner.ensure_running(job, 200.0)
    runner.release(job)
    assert len(waiting) == 1
    waiting.pop()()
    runner.release(job)
    waiting.pop()()
    assert world.lighthouses.running == set()
    assert world.store.jobs.get(job).lighthouse is None


def test_a_lighthouse_whose_address_was_never_stored_is_put_out_too(world: World) -> None:
    job, ensure = world.submit(), world.lighthouses.ensure

    def light_and_die(job: str) -> str:
        ensure(job)
        raise KeyboardInterrupt("the controller is killed")

    world.lighthouses.ensure = light_and_die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        light(world.store, world.lighthouses, job)
    assert world.lighthouses.running == {job}
    world.lighthouses.ensure = ensure  # type: ignore[method-assign]
    world.restart()
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(3)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    assert world.lighthouses.running == set()


def test_a_lighthouse_is_known_until_it_has_been_put_out(world: World) -> None:
    job = _trains(world)
    release = world.lighthouses.release

    def refuse(job: str) -> None:
        raise Unavailable("it does not end")

    world.lighthouses.release = refuse  # type: ignore[method-assign]
    world.store.jobs.request_stop(job, world.clock.now())
    world.tick(6)
    assert world.store.jobs.get(job).phase is JobPhase.STOPPED
    assert world.store.jobs.get(job).lighthouse is not None
    world.lighthouses.release = release  # type: ignore[method-assign]
    world.tick(1)
    assert world.lighthouses.running == set()
    assert world.store.jobs.get(job).lighthouse is None


def _given_up_but_there(world: World) -> HeldInstance:
    """An order whose launch got through unseen, and was refused when it was made again."""
    job = world.submit()
    world.set_target(job, 1)

    def lose_reply(call: str) -> None:
        world.cloud.after_call = lambda name: None
        world.cloud.unlisted = {"cloud-0"}
        world.cloud.refusals = [InsufficientCapacity("no more of it")]
        raise Unavailable("the reply was lost")

    world.cloud.after_call = lose_reply
    world.tick(2)
    world.set_target(job, 0)
    (held,) = world.store.instances.of_job(job, include_ended=True)
    assert held.phase is InstancePhase.ENDED
    assert len(world.cloud.running()) == 1
    return held


def test_an_instance_that_was_given_up_is_billed_to_its_end(world: World) -> None:
    _given_up_but_there(world)
    world.cloud.unlisted = set()
    world.tick(5)
    assert world.cloud.running() == []
    world.assert_nothing_leaked()


def test_one_that_was_given_up_and_ended_before_it_was_listed_is_billed_too(world: World) -> None:
    _given_up_but_there(world)
    world.cloud.lose("cloud-0")
    world.cloud.unlisted = set()
    world.tick(3)
    world.assert_nothing_leaked()


def test_one_that_was_given_up_is_terminated_until_it_ends(world: World) -> None:
    _given_up_but_there(world)
    terminate = world.cloud.terminate

    def ignore(instance_ids: Sequence[str]) -> None:
        pass

    world.cloud.terminate = ignore  # type: ignore[method-assign]
    world.cloud.unlisted = set()
    world.tick(5)
    world.cloud.terminate = terminate  # type: ignore[method-assign]
    world.tick(5)
    assert len(world.cloud.running()) == 1, "it was told to end, and is given its time"
    world.tick(4, seconds=20.0)
    assert world.cloud.running() == []
    world.assert_nothing_leaked()


def test_a_call_that_was_settled_meanwhile_is_not_made(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    pending = world.store.intents.pending
    found: list[object] = []

    def stale(now_seconds: float) -> object:
        found.extend(pending(now_seconds))
        return tuple(found)

    world.store.intents.pending = stale  # type: ignore[method-assign,assignment]
    world.cloud.refusals = [InsufficientCapacity("no more of it")]
    world.tick(1)
    world.set_target(job, 0)
    world.tick(3)
    assert world.cloud.launch_calls == 1
    assert world.cloud.running() == []


def test_a_buried_instance_that_is_listed_again_is_billed_on_and_ended(world: World) -> None:
    job = _trains(world, instances=1)
    (held,) = world.training(job)
    world.cloud.unlisted = {held.cloud_id or ""}
    for _ in range(33):
        phase = InstancePhase.TRAINING
        world.store.instances.record_node(held.id, phase, world.clock.now())
        world.tick(1, seconds=20.0, agents=False)
    assert world.store.instances.get(held.id).phase is InstancePhase.ENDED
    world.set_target(job, 0)
    world.tick(3)
    assert held.cloud_id in {seen.id for seen in world.cloud.running()}
    world.cloud.unlisted = set()
    world.tick(3)
    assert world.cloud.running() == []
    assert len(_events(world, "instance found again")) == 1
    world.assert_nothing_leaked()


def test_a_job_that_one_replica_has_completed_does_not_fail(world: World) -> None:
    job = _trains(world, instances=3, retries=0)
    first, second, third = world.training(job)
    world.complete(first)
    failure = Failure(second.id, 1, 1, "its peers have gone", "boom", 100)
    world.store.reports.add_failure(job, failure, world.clock.now())
    world.store.instances.record_node(second.id, InstancePhase.WAITING, world.clock.now())
    world.tick(1, agents=False)
    assert world.store.jobs.get(job).phase is JobPhase.RUNNING, "the third is still at it"
    world.complete(third)
    world.tick(1, agents=False)
    assert world.store.jobs.get(job).phase is JobPhase.FINISHED
    assert world.store.jobs.get(job).attempt == 1


@pytest.mark.parametrize("is_measured", [True, False])
def test_nothing_is_planned_while_no_offers_are_known(world: World, is_measured: bool) -> None:
    job = _trains(world)
    if is_measured:
        observed = StepObservation("core", 1, 1, 32, 0, 0.1, 0.0, 50)
        world.store.measurements.add_observations(job, [observed], world.clock.now())
    other = world.submit("other")
    world.cloud.answers = False
    world.restart()
    world.set_target(job, 0)
    world.store.jobs.request_stop(other, world.clock.now())
    report = world.controller.tick(world.clock.now())
    assert "does not answer" in (report.trouble or "")
    assert len(world.training(job)) == 2
    assert world.store.jobs.get(other).phase is JobPhase.STOPPED
    world.cloud.answers = True
    world.tick(3)
    assert world.training(job) == []


def test_one_job_that_can_not_be_told_of_does_not_stop_the_others(world: World) -> None:
    job, other = _trains(world), world.submit("other")
    observations = world.store.measurements.observations

    def broken(name: str) -> tuple[StepObservation, ...]:
        if name == job:
            raise ZeroDivisionError("no such measurement")
        return observations(name)

    world.store.measurements.observations = broken  # type: ignore[method-assign]
    world.set_target(other, 1)
    world.cloud.lose(world.training(job)[0].cloud_id or "")
    world.tick(6)
    assert len(world.training(other)) == 1
    assert len(world.training(job)) == 2, "what was decided for it stays in force"


def _boot_and_die(world: World, ticks: int, seconds: float = 2.0) -> int:
    """All instances end soon after their launch; returns how many were launched."""
    before = world.cloud.launch_calls
    for _ in range(ticks):
        world.tick(1, seconds, agents=False)
        for held in world.store.instances.alive():
            age_seconds = world.clock.now() - (held.launched_seconds or world.clock.now())
            if held.cloud_id is not None and age_seconds >= 2.0:
                world.cloud.lose(held.cloud_id)
    return world.cloud.launch_calls - before


def test_instances_that_end_before_they_train_are_bought_ever_more_slowly(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    assert 3 < _boot_and_die(world, 60) < 9
    last = _events(world, "false starts")[0]
    assert "starts in a row ended before they trained" in last
    assert "before its agent had joined" in last
    world.restart()
    assert _boot_and_die(world, 20) <= 1, "a restart forgets nothing"
    assert _boot_and_die(world, 90, 20.0) >= 3, "it is tried again for ever"


def test_failed_starts_that_ended_in_the_future_hold_no_order_back(world: World) -> None:
    """Check that a clock that was a day ahead does not hold orders back for a day."""
    job = world.submit()
    world.set_target(job, 1)
    _boot_and_die(world, 60)
    now_seconds = world.clock.now()
    assert false_starts(world.store, job, now_seconds)
    earlier_seconds = now_seconds - 86_400.0
    assert not false_starts(world.store, job, earlier_seconds)
    assert false_starts_everywhere(world.store, job, earlier_seconds) is None
    world.tick(32, 20.0)
    assert len(world.training(job)) == 1
    world.cloud.lose(world.training(job)[0].cloud_id or "")
    world.tick(8)
    assert len(world.training(job)) == 1, "one that trained has put it right"


def test_what_dies_on_every_offer_is_bought_ever_more_slowly_on_all(world: World) -> None:
    """An image that does not boot, in a pool with many types and zones."""
    names = [f"kind-{number}" for number in range(20)]
    world.cloud.sold = tuple(offer(name) for name in names)
    job, launched = world.submit(), 0
    for name in names:
        world.set_target(job, 1, name)
        launched += _boot_and_die(world, 6)
    assert 6 <= launched <= 12
    (told,) = {text for text in _events(world, "false starts")[:1]}
    assert "on all offers" in told
    for name in names:
        world.set_target(job, 1, name)
        world.tick(30, 20.0)
        if world.training(job):
            break
    assert world.training(job), "it is tried again for ever"
    assert false_starts_everywhere(world.store, job, world.clock.now()) is None


def test_a_pool_that_ends_at_once_is_one_false_start(world: World) -> None:
    job = world.submit()
    world.set_target(job, 4)
    _boot_and_die(world, 5)
    world.tick(6)
    assert len(world.training(job)) == 4
    assert _events(world, "false starts") == []


def test_another_offer_is_planned_with_while_one_is_kept_away_from(world: World) -> None:
    job = world.submit()
    world.set_target(job, 1)
    _boot_and_die(world, 30)
    snapshot = world.controller._snapshots.take(world.store.jobs.alive(), (), world.clock.now())
    assert snapshot.jobs[0].instances.offers == ("large",)


def test_instances_that_were_given_up_count_and_those_let_go_do_not(world: World) -> None:
    world.settings = replace(world.settings, join_seconds=20.0)
    world.restart()
    job = world.submit()
    for _ in range(5):
        world.set_target(job, 1)
        world.tick(2, agents=False)
        world.set_target(job, 0)
        world.tick(3, agents=False)
    assert world.cloud.running() == []
    world.set_target(job, 1)
    before = world.cloud.launch_calls
    world.tick(100, agents=False)
    assert any("its agent never joined" in text for text in _events(world, "false starts"))
    assert 3 < world.cloud.launch_calls - before < 7


def test_a_cloud_that_takes_long_to_list_is_asked_less_often(world: World) -> None:
    """List a slow cloud less often, so that most time is left for other calls."""
    asked: list[float] = []
    list_now = world.cloud.instances

    def slowly() -> Sequence[CloudInstance]:
        asked.append(world.clock.now())
        world.clock.advance(2.0)
        return list_now()

    world.cloud.instances = slowly  # type: ignore[method-assign]
    world.tick(50, seconds=1.0, agents=False)
    assert {round(later - sooner) for sooner, later in pairwise(asked)} == {20}


@pytest.mark.parametrize("key", Fact)
def test_a_malformed_fact_stops_no_tick_and_keeps_no_instance(world: World, key: Fact) -> None:
    job, other = world.submit(), world.submit("other")
    world.set_target(job, 1)
    world.set_target(other, 1)
    world.tick(6)
    (held,) = world.training(job)
    world.store.instances.note(held.id, {key: "a week ago"})
    world.tick(6)
    assert len(world.training(other)) == 1
    for running in world.store.jobs.alive():
        world.store.jobs.request_stop(running.id, world.clock.now())
    world.tick(20)
    assert world.cloud.running() == []
    world.assert_nothing_leaked()
