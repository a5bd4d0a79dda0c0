"""Restartable jobs in the whole controller, with agents that follow its replies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoscaler.controller.jobs.restart_reports import latest_world
from autoscaler.domain.instance import CloudState, Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.job_world import JobWorld
from autoscaler.domain.report import Failure
from autoscaler.domain.restart import RestartSpec
from autoscaler.service.instances.world_replies import WorldReplies
from autoscaler.store.repositories.measurements import RESTART_DURATION, SAVE_INTERVAL_DURATION
from autoscaler.wire.messages import NodeReply, NodeReport, Wanted
from tests.controller.world import World

RESTART = RestartSpec("ckpt/*", grace_seconds=10.0, wait_seconds=600.0, progress="step {step}")


@dataclass
class Agent:
    """Agent of one instance: the generation that it runs or ran last, and its checkpoint.

    The command stops after SIGTERM within `stops_left` reports.
    """

    generation: int = 0
    stops_left: int = 0
    is_running: bool = False
    saved: str | None = None


class RestartingWorld(World):
    """Deployment whose agents start and stop the command as the replies say."""

    def __init__(self, directory: Path, devices: int = 6) -> None:
        super().__init__(directory, devices=devices)
        self.agents: dict[str, Agent] = {}
        self.stop_reports = 0

    def report_from_agents(self) -> None:
        states = {instance.id: instance.state for instance in self.cloud.instances()}
        for held in self.store.instances.alive():
            if states.get(held.cloud_id or "") is CloudState.RUNNING:
                self._report(held)

    def _report(self, held: HeldInstance) -> None:
        replies, job = WorldReplies(self.store), self.store.jobs.get(held.job)
        wanted = Wanted.RUN if held.desired is Desired.PRESENT else Wanted.DRAIN
        reply = replies.reply(held, job, NodeReply(wanted, job.attempt, None, 1, 60.0))
        agent = self.agents.setdefault(held.id, Agent())
        phase = self._act(held, agent, reply)
        is_leader = reply.place is not None and reply.place.leads
        report = NodeReport(
            instance=held.id,
            phase=phase,
            attempt=job.attempt,
            devices_used=1,
            generation=agent.generation,
            is_generation_over=bool(agent.generation) and not agent.is_running,
            rendezvous=f"{held.id}:80" if is_leader and not agent.is_running else None,
            saved=agent.saved,
        )
        facts = replies.facts(held, report, self.clock.now())
        after = self.store.instances.record_node(held.id, phase, self.clock.now(), facts)
        replies.measure(held, after)

    def _act(self, held: HeldInstance, agent: Agent, reply: NodeReply) -> InstancePhase:
        place = reply.place
        generation = 0 if place is None else place.generation
        has_to_stop = reply.wanted is Wanted.DRAIN or reply.pauses or generation > agent.generation
        if agent.is_running and has_to_stop:
            agent.stops_left -= 1
            agent.is_running = agent.stops_left >= 0
            if agent.is_running:
                drains = reply.wanted is Wanted.DRAIN
                return InstancePhase.DRAINING if drains else InstancePhase.PREPARING
        elif not agent.is_running and place is not None and reply.may_start:
            assert place.address is not None
            if generation > agent.generation:
                agent.generation, agent.is_running, agent.saved = generation, True, None
                agent.stops_left = self.stop_reports
        if agent.is_running:
            return InstancePhase.TRAINING
        return InstancePhase.DRAINED if reply.wanted is Wanted.DRAIN else InstancePhase.READY

    def submit_restartable(self, target: int, minimum: int = 1) -> str:
        job = self.submit("job", maximum=4, restart=RESTART)
        self.store.jobs.change_spec(job, None, InstanceBounds(minimum, 4), None)
        self.set_target(job, target)
        return job

    def present(self, job: str) -> JobWorld:
        world = latest_world(self.store.instances.of_job(job, include_ended=True))
        assert world is not None
        return world

    def running(self) -> dict[int, set[str]]:
        """Return the instances in the cloud that run the command, by generation."""
        alive = {held.id for held in self.store.instances.alive()}
        running: dict[int, set[str]] = {}
        for name, agent in self.agents.items():
            if agent.is_running and name in alive:
                running.setdefault(agent.generation, set()).add(name)
        return running

    def save(self, job: str, name: str) -> None:
        """Let the agent of the leader report a checkpoint."""
        self.agents[self.present(job).members[0]].saved = name


@pytest.fixture
def world(tmp_path: Path) -> RestartingWorld:
    return RestartingWorld(tmp_path)


def test_all_instances_start_together(world: RestartingWorld) -> None:
    job = world.submit_restartable(3)
    world.tick(12)
    assert world.running() == {1: set(world.present(job).members)}
    assert len(world.present(job).members) == 3
    assert not world.lighthouses.running, "no quorum is needed"


def test_a_new_size_waits_for_a_checkpoint(world: RestartingWorld) -> None:
    job = world.submit_restartable(1)
    world.tick(12)
    (first,) = world.present(job).members
    world.set_target(job, 3)
    world.tick(20)
    assert world.running() == {1: {first}}, "the new instances wait, prepared"
    world.save(job, "step-1")
    world.tick(5)
    present = world.present(job)
    assert present.generation == 2 and present.members[0] == first
    assert world.running() == {2: set(present.members)}
    durations = world.store.measurements.durations(job)
    assert 0 < durations[None, RESTART_DURATION].seconds <= 10.0
    assert durations[None, SAVE_INTERVAL_DURATION].seconds >= 20.0


def test_surplus_instances_stay_until_a_checkpoint(world: RestartingWorld) -> None:
    job = world.submit_restartable(3)
    world.tick(12)
    world.set_target(job, 1)
    world.tick(20)
    assert len(world.cloud.running()) == 3
    world.save(job, "step-1")
    world.tick(6)
    assert len(world.cloud.running()) == 1
    assert world.running() == {2: set(world.present(job).members)}
    world.assert_nothing_leaked()


def test_a_start_waits_for_the_slowest_to_stop(world: RestartingWorld) -> None:
    world.stop_reports = 4
    job = world.submit_restartable(2)
    world.tick(12)
    first, second = world.present(job).members
    world.agents[first].stops_left = 0
    world.set_target(job, 1)
    world.tick(2)
    world.save(job, "step-1")
    world.tick(3)
    assert world.running() == {1: {second}}, "the other instance still leaves"
    world.tick(5)
    assert world.running() == {2: {first}}


def test_a_plan_that_changes_its_mind_restarts_nothing(world: RestartingWorld) -> None:
    job = world.submit_restartable(2)
    world.tick(12)
    world.set_target(job, 1)
    world.tick(3)
    world.set_target(job, 2)
    world.tick(3)
    world.save(job, "step-1")
    world.tick(5)
    assert world.present(job).generation == 1 and len(world.cloud.running()) == 2


def test_without_a_checkpoint_the_wait_is_bounded(world: RestartingWorld) -> None:
    job = world.submit_restartable(1)
    world.tick(12)
    world.set_target(job, 2)
    world.tick(20)
    world.tick(3, seconds=RESTART.wait_seconds / 2)
    world.tick(5)
    assert len(world.present(job).members) == 2


def test_a_lost_instance_restarts_the_rest_and_is_replaced(world: RestartingWorld) -> None:
    job = world.submit_restartable(2)
    world.tick(12)
    lost, other = world.present(job).members
    world.cloud.lose(world.store.instances.get(lost).cloud_id or "")
    world.tick(4)
    assert world.present(job).members == (other,)
    world.tick(10)
    assert world.running() == {2: {other}}, "its replacement waits for a checkpoint"
    world.save(job, "step-1")
    world.tick(5)
    assert len(world.present(job).members) == 2
    assert world.store.jobs.get(job).attempt == 1, "a lost instance costs no retry"


def test_below_the_minimum_the_job_stands_still(world: RestartingWorld) -> None:
    job = world.submit_restartable(2, minimum=2)
    world.tick(12)
    lost = world.present(job).members[0]
    world.cloud.lose(world.store.instances.get(lost).cloud_id or "")
    world.tick(2)
    assert world.present(job).members == ()
    world.tick(2)
    assert world.running() == {}
    world.tick(12)
    assert len(world.present(job).members) == 2 and len(world.running()) == 1


def test_a_move_to_another_offer_is_one_restart(world: RestartingWorld) -> None:
    job = world.submit_restartable(1)
    world.tick(12)
    world.set_target(job, 1, offer="large")
    world.tick(15)
    world.save(job, "step-1")
    world.tick(8)
    (member,) = world.present(job).members
    assert world.store.instances.get(member).offer == "large"
    assert world.present(job).generation == 2
    assert len(world.cloud.running()) == 1


def test_a_failed_command_restarts_on_all_instances(world: RestartingWorld) -> None:
    job = world.submit_restartable(2)
    world.tick(12)
    failing = world.present(job).members[1]
    for agent in world.agents.values():
        agent.is_running = False
    failure = Failure(failing, 1, 1, "ValueError", "ValueError", steps=100)
    world.store.reports.add_failure(job, failure, world.clock.now())
    world.tick(8)
    assert world.store.jobs.get(job).attempt == 2
    assert world.running() == {world.present(job).generation: set(world.present(job).members)}
    assert world.present(job).attempt == 2


def test_a_restarted_controller_restarts_no_command(world: RestartingWorld) -> None:
    job = world.submit_restartable(2)
    world.tick(12)
    world.restart()
    world.tick(10)
    assert world.present(job).generation == 1 and set(world.running()) == {1}


EVENTS = ("tick", "grow", "shrink", "lose", "save", "restart", "large")


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(events=st.lists(st.sampled_from(EVENTS), max_size=15))
def test_after_any_faults_one_world_of_all_instances_runs(
    events: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = RestartingWorld(tmp_path_factory.mktemp("world"))
    world.stop_reports = 2
    job = world.submit_restartable(2)
    target, offer = 2, "small"
    for number, event in enumerate(events):
        if event in ("grow", "shrink"):
            target = min(max(target + (1 if event == "grow" else -1), 1), 3)
        elif event == "large":
            offer = "large" if offer == "small" else "small"
        elif event == "lose" and (running := world.cloud.running()):
            world.cloud.lose(running[0].id)
        elif event == "restart":
            world.restart()
        elif event == "save" and world.running():
            members = world.present(job).members
            if members and members[0] in world.agents:
                world.agents[members[0]].saved = str(number)
        world.set_target(job, target if offer == "small" else 1, offer)
        world.tick(2)
        assert len(world.running()) <= 1, "two worlds never run at once"
    target = target if offer == "small" else 1
    for round_number in range(4):
        world.tick(8)
        members = world.present(job).members
        if members and members[0] in world.agents:
            world.agents[members[0]].saved = f"last-{round_number}"
        world.tick(4)
    world.tick(2, seconds=RESTART.wait_seconds)
    world.tick(12)
    present = world.present(job)
    assert world.running() == {present.generation: set(present.members)}
    assert len(present.members) == target == len(world.cloud.running())
    world.assert_nothing_leaked()
