"""Command of a restartable job, as the agent of its instance observes it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.gang import GangPlace
from autoscaler.domain.job import BatchSpec, JobSpec
from autoscaler.domain.restart import RestartSpec
from autoscaler.node.disk import Disk
from autoscaler.node.files.grants import Grants
from autoscaler.node.instance import Instance
from autoscaler.node.restarts.command import Command
from autoscaler.node.restarts.saver import CommandEnd
from autoscaler.node.state import AgentState, Prepared, Start
from autoscaler.wire.node_client import NodeClient
from providers.metadata import InstanceMetadata
from tests.builders.waiting import wait_until
from tests.node.controller import FakeController

RESTART = RestartSpec("ckpt/step-*", progress="step {step}")
SPEC = JobSpec("plain", ("true",), batch=BatchSpec(initial=64), restart=RESTART)


class Bench:
    """Command on an instance with a work directory, a log, and a place for saves."""

    def __init__(self, directory: Path, spec: JobSpec = SPEC) -> None:
        self.clock = VirtualClock(1000.0)
        self.notes: list[str] = []
        disk = Disk(directory / "disk")
        disk.work.mkdir()
        metadata = cast(InstanceMetadata, None)
        instance = Instance("plain-0-1", metadata, disk, {})
        grants = Grants(disk.grant, cast(NodeClient, None), self.clock)
        self.command = Command(instance, grants, self.clock, lambda: None, self.notes.append)
        self.disk = disk
        assignment = FakeController(spec, directory / "checkpoints", {}).assignment
        self.state = AgentState("token", 1.0, 60.0, 60.0, assignment, Prepared("python"))

    def begin(self, index: int = 0, generation: int = 1) -> None:
        place = GangPlace("plain", generation, index, 2, "10.0.0.1:80")
        start = Start(1, 2, self.clock.now(), log_offset=0, place=place)
        self.state = replace(self.state, start=start)
        self.command.begin(self.state)

    def print(self, text: str) -> None:
        with self.disk.log.open("a") as log:
            log.write(f"{text}\n")

    def write(self, name: str) -> None:
        path = self.disk.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        os.utime(path, (self.clock.now(), self.clock.now()))

    def restore(self, generation: int) -> None:
        place = GangPlace("plain", generation, 0, 2, "10.0.0.1:80")
        prepared = Prepared("python")
        assignment = self.state.assignment
        wait_until(lambda: self.command.is_restored(assignment, prepared, place), "the checkpoint")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_leader_reports_what_the_command_prints(bench: Bench) -> None:
    bench.begin()
    start = bench.state.start
    assert start is not None
    assert bench.command.turn(start) is None
    assert not bench.command.is_at_work(start, bench.state.assignment)
    bench.print("step 10 loss 3")
    first = bench.command.turn(start)
    assert first is not None and first.progress_examples == 640 and first.replicas == 2
    assert bench.command.is_at_work(start, bench.state.assignment) and bench.command.steps == 1
    bench.clock.advance(5.0)
    bench.print("step 20 loss 3")
    second = bench.command.turn(start)
    assert second is not None and second.observations[0].step_seconds == pytest.approx(0.5)
    assert second.devices == 4 and bench.command.steps == 10


def test_a_follower_trains_and_reports_nothing(bench: Bench) -> None:
    bench.begin(index=1)
    start = bench.state.start
    assert start is not None
    bench.print("step 10")
    bench.write("ckpt/step-1")
    bench.clock.advance(10.0)
    assert bench.command.turn(start) is None and bench.command.saved is None
    assert bench.command.is_at_work(start, bench.state.assignment)
    assert bench.command.is_settled(CommandEnd(bench.clock.now()))


def test_a_checkpoint_is_saved_reported_and_restored(bench: Bench) -> None:
    bench.restore(1)
    bench.begin()
    start = bench.state.start
    bench.clock.advance(1.0)
    bench.write("ckpt/step-1")
    bench.print("step 10")

    def saved() -> bool:
        bench.clock.advance(3.0)
        bench.command.turn(start)
        time.sleep(0.01)
        return bench.command.saved is not None

    wait_until(saved, "a saved checkpoint")
    assert bench.command.saved is not None and bench.command.saved.startswith("ckpt/step-1@")
    bench.print("step 11")
    report = bench.command.turn(start)
    assert report is not None and report.checkpoint.bytes == len("ckpt/step-1")
    end = CommandEnd(bench.clock.now())
    wait_until(lambda: bench.command.is_settled(end), "the last scan")
    (bench.disk.work / "ckpt/step-1").unlink()
    bench.restore(2)
    assert (bench.disk.work / "ckpt/step-1").read_text() == "ckpt/step-1"
    assert bench.notes == []


def test_jobs_with_sessions_are_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, replace(SPEC, restart=None))
    bench.begin()
    start = bench.state.start
    assert start is not None
    bench.print("step 10")
    assert bench.command.turn(start) is None and bench.command.saved is None
    assert not bench.command.is_at_work(start, bench.state.assignment)
    bench.restore(1)
