"""Listings that arrive long after they began, and providers that never answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autoscaler.controller.assembly import ControllerParts, assemble
from autoscaler.controller.controller import Controller
from autoscaler.controller.settings import ControllerSettings
from autoscaler.controller.workers import CallKind, InlineWorkers, Workers
from autoscaler.domain.instance import InstancePhase
from tests.controller.cloud import FileCloud, offer
from tests.controller.world import World


@dataclass
class LateLists:
    """Workers whose listings end only when the test says so; other calls are made inline."""

    waiting: list[Callable[[], None]] = field(default_factory=list)
    is_late: bool = False

    def of(self, kind: CallKind, provider: str) -> Workers:
        return self if kind is CallKind.LIST and self.is_late else InlineWorkers()

    def submit(self, call: Callable[[], None]) -> object:
        self.waiting.append(call)
        return None


def _controller(world: World, call_workers: object, **clouds: FileCloud) -> Controller:
    parts = ControllerParts(
        store=world.store,
        providers={"file": world.cloud, **clouds},
        policy=world.policy,
        lighthouses=world.lighthouses,
        workers=InlineWorkers(),
        clock=world.clock,
        user_data=lambda held: "user data",
        call_workers=call_workers,  # type: ignore[arg-type]
    )
    return assemble(parts, world.settings)


def test_a_stale_listing_ends_no_instance_that_was_launched_after_it_began(
    tmp_path: Path,
) -> None:
    settings = ControllerSettings(replan_seconds=0.0, vanished_seconds=0.0)
    world, lists = World(tmp_path, settings), LateLists()
    world.controller = _controller(world, lists)
    job = world.submit()
    world.tick(1)
    instances = world.cloud.instances
    stale = instances()
    lists.is_late = True
    world.tick(1)  # the listing begins, and sees nothing
    world.set_target(job, 1)
    world.tick(4)
    (held,) = world.store.instances.of_job(job)
    assert held.cloud_id is not None
    world.cloud.instances = lambda: stale  # type: ignore[method-assign]
    (late,) = lists.waiting
    late()
    world.cloud.instances = instances  # type: ignore[method-assign]
    world.tick(2)
    assert world.store.instances.get(held.id).phase is not InstancePhase.ENDED
    lists.is_late = False
    for call in lists.waiting[1:]:
        call()
    world.cloud.unlisted = {held.cloud_id}
    world.tick(2, agents=False)
    assert world.store.instances.get(held.id).phase is InstancePhase.ENDED, "a newer one says so"


def test_an_instance_that_vanished_ends_although_each_provider_answers_at_another_time(
    tmp_path: Path,
) -> None:
    settings = ControllerSettings(replan_seconds=0.0, vanished_seconds=10.0)
    world, lists = World(tmp_path, settings), LateLists()
    other = FileCloud(tmp_path / "other.json", world.clock)
    other.sold = (replace(offer("other"), provider="other"),)
    world.controller = _controller(world, lists, other=other)
    job = world.submit()
    world.set_target(job, 1)
    world.tick(4)
    (held,) = world.store.instances.of_job(job)
    assert held.cloud_id is not None
    world.cloud.unlisted = {held.cloud_id}
    lists.is_late = True
    world.tick(1, agents=False)
    began_seconds = world.clock.now()
    while world.store.instances.get(held.id).phase is not InstancePhase.ENDED:
        assert world.clock.now() - began_seconds < 60.0
        lists.waiting.pop(0)()
        world.tick(1, agents=False)
    assert world.clock.now() - began_seconds > settings.vanished_seconds


class Threads:
    """Threads for each kind of call and provider."""

    def __init__(self) -> None:
        self._pools: dict[tuple[CallKind, str], ThreadPoolExecutor] = {}

    def of(self, kind: CallKind, provider: str) -> Workers:
        return self._pools.setdefault((kind, provider), ThreadPoolExecutor(8))

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.close()


def _silent_cloud(world: World, path: Path, answers: threading.Event) -> FileCloud:
    """Return a cloud of which no call ends before `answers` is set."""
    silent = FileCloud(path, world.clock)
    silent.sold = (replace(offer("silent"), provider="silent"),)

    def wait() -> None:
        answers.wait(60.0)

    silent._must_answer = wait  # type: ignore[method-assign]
    silent.offers = lambda: answers.wait(60.0) and silent.sold  # type: ignore[method-assign,assignment,return-value]
    return silent


def test_a_provider_that_never_answers_neither_slows_ticks_nor_the_sales_of_the_other(
    tmp_path: Path, threads: Threads
) -> None:
    world, answers = World(tmp_path), threading.Event()
    silent = _silent_cloud(world, tmp_path / "silent.json", answers)
    world.controller = _controller(world, threads, silent=silent)
    job = world.submit()
    world.set_target(job, 2)
    longest_seconds, end_seconds = 0.0, time.monotonic() + 30.0
    try:
        while len(world.training(job)) < 2:
            began_seconds = time.monotonic()
            assert began_seconds < end_seconds, "the other provider did not sell"
            world.tick(1)
            longest_seconds = max(longest_seconds, time.monotonic() - began_seconds)
            time.sleep(0.01)
        world.clock.advance(60.0)
        world.tick(1)
        assert world.controller.status.silent == {"silent"}
        assert "silent: has not answered for" in (world.controller.status.trouble or "")
        assert longest_seconds < 2.0
        _assert_terminations_go_on(world, job)
    finally:
        answers.set()


def _assert_terminations_go_on(world: World, job: str) -> None:
    """Stop the job; its instances end although launches of both providers hang."""
    held_back = threading.Event()
    world.cloud.before_call = lambda name: (  # type: ignore[assignment,return-value]
        held_back.wait(60.0) if name in ("launch", "console") else None
    )
    other = world.submit("other")
    world.set_target(other, 2)
    world.store.jobs.request_stop(job, world.clock.now())
    end_seconds = time.monotonic() + 30.0
    try:
        while world.cloud.running():
            assert time.monotonic() < end_seconds, "terminations wait behind launches"
            world.tick(1)
            time.sleep(0.01)
    finally:
        held_back.set()
