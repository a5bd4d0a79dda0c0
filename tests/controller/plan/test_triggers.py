"""Between two plans that are due, only news asks for one, and only of what is news it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.goodput import NoiseScale
from autoscaler.domain.plan import Plan
from autoscaler.domain.report import ReportOrigin, StepObservation
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from tests.conformance.store_examples import report
from tests.controller.world import World

REPLAN_SECONDS = 60.0
KNOWN = NoiseScale(64, 1.0, 2.0, 0.1)


class Watched:
    """A world in which plans are made on news, and the snapshots that they were made from."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.snapshots: list[Snapshot] = []
        plan = world.policy.plan

        def watched(snapshot: Snapshot) -> Plan:
            self.snapshots.append(snapshot)
            return plan(snapshot)

        world.policy.plan = watched  # type: ignore[method-assign]

    def latest(self, job: str) -> JobSnapshot:
        (found,) = (each for each in self.snapshots[-1].jobs if each.id == job)
        return found

    def tells(self, job: str, progress_examples: float, noise: NoiseScale | None) -> None:
        (held,) = self.world.training(job)
        told = report(
            observations=(StepObservation("cpu-core", 1, 1, 64, 0, 0.5, 0.0, 100),),
            progress_examples=progress_examples,
            total_examples=1e6,
            noise=noise,
        )
        now_seconds = self.world.clock.now()
        origin = ReportOrigin(held.id, 1, now_seconds)
        assert self.world.store.reports.add(job, told, origin, now_seconds)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(World(tmp_path, ControllerSettings(replan_seconds=REPLAN_SECONDS)))


def training(watched: Watched, name: str) -> str:
    """A job that has told of itself, and of which all that is known was planned with."""
    world = watched.world
    job = world.submit(name)
    world.set_target(job, 1)
    world.tick(6)
    watched.tells(job, 1000.0, KNOWN)
    world.tick(2)
    return job


def test_progress_and_a_noise_scale_that_drifts_are_no_news(watched: Watched) -> None:
    job = training(watched, "first")
    plans = len(watched.snapshots)
    watched.tells(job, 9000.0, NoiseScale(64, 1.0, 3.0, 0.1))
    watched.world.tick(2)
    assert len(watched.snapshots) == plans
    watched.world.tick(seconds=REPLAN_SECONDS)
    assert len(watched.snapshots) == plans + 1
    taken = watched.latest(job)
    assert taken.progress_examples == 9000.0
    assert taken.as_of_seconds == watched.world.clock.now()


def test_news_of_one_job_leaves_the_others_as_they_were(watched: Watched) -> None:
    first = training(watched, "first")
    before = watched.latest(first)
    watched.tells(first, 9000.0, KNOWN)
    second = watched.world.submit("second")
    watched.world.tick()
    assert watched.latest(second).as_of_seconds == watched.world.clock.now()
    assert watched.latest(first) is before


def test_a_noise_scale_that_comes_to_be_known_is_news(watched: Watched) -> None:
    world = watched.world
    job = world.submit("first")
    world.set_target(job, 1)
    world.tick(6)
    watched.tells(job, 1000.0, None)
    world.tick(2)
    plans = len(watched.snapshots)
    watched.tells(job, 2000.0, KNOWN)
    world.tick()
    assert len(watched.snapshots) == plans + 1
    assert watched.latest(job).noise == KNOWN
