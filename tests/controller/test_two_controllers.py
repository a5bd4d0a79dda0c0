"""Two controllers that act on one store by mistake order what one of them would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoscaler.controller.assembly import assemble
from autoscaler.domain.errors import NotLeading
from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobSpec
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Decision
from autoscaler.store.opening import open_store
from autoscaler.store.sql.fence import WriteFence
from autoscaler.store.sql.leadership import Leadership, LeaseCandidate
from tests.builders.postgresql import Create
from tests.conformance.store_examples import execute
from tests.controller.world import World


def test_a_decision_is_ordered_once_though_another_controller_acts_in_between(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = World(tmp_path, template=template, devices=8)
    second = World(tmp_path, devices=8)
    job = first.submit(maximum=8)
    for world in (first, second):
        world.set_target(job, 2)
    reconciler = first.controller._reconciler
    order_missing = reconciler.order_missing

    def order_missing_late(
        decision: Decision,
        spec: JobSpec,
        alive: Sequence[HeldInstance],
        offers: Sequence[Offer],
        now_seconds: float,
    ) -> None:
        """Order by what was read before the other controller ordered."""
        second.controller.tick(second.clock.now())
        second.controller.tick(second.clock.now())
        order_missing(decision, spec, alive, offers, now_seconds)

    monkeypatch.setattr(reconciler, "order_missing", order_missing_late)
    first.controller.tick(first.clock.now())
    assert len(first.store.instances.of_job(job)) == 2
    assert len(first.cloud.running()) == 2


class LedWorld(World):
    """World whose store is in PostgreSQL, and led by the holder of its lease."""

    def __init__(self, directory: Path, url: str, name: str) -> None:
        self.url = url
        self.fence = WriteFence()
        self.led_store = open_store(url, self.fence)
        self.leadership = Leadership(
            url, LeaseCandidate(name, f"http://{name}"), self.fence, 600.0
        )
        self.leadership.acquire()  # the first world leads
        super().__init__(directory, devices=8)

    def restart(self) -> None:
        self.store = self.led_store
        self.controller = assemble(
            replace(self.parts(), require_lead=self.leadership.require_lease), self.settings
        )

    def close(self) -> None:
        self.leadership.release()
        self.led_store.close()


@pytest.fixture
def worlds(postgresql: Create, tmp_path: Path) -> Iterator[tuple[LedWorld, LedWorld]]:
    url = postgresql()
    first, second = (LedWorld(tmp_path, url, name) for name in ("first", "second"))
    yield first, second
    first.close()
    second.close()


def _end_lease(world: LedWorld) -> None:
    execute(world.url, "UPDATE leadership SET expires_seconds = 1 WHERE id = 1")


def test_of_two_controllers_on_one_store_only_the_leader_orders(
    worlds: tuple[LedWorld, LedWorld],
) -> None:
    first, second = worlds
    job = first.submit(maximum=8)
    for world in worlds:
        world.set_target(job, 2)
    for _ in range(4):
        first.tick(1)
        with suppress(NotLeading):
            second.tick(1)
    assert len(first.store.instances.of_job(job)) == 2
    assert len(first.cloud.running()) == 2
    assert second.cloud.launch_calls == 0


def test_a_leader_that_was_frozen_between_reading_and_ordering_orders_nothing(
    worlds: tuple[LedWorld, LedWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = worlds
    job = first.submit(maximum=8)
    for world in worlds:
        world.set_target(job, 2)
    order_missing = first.controller._reconciler.order_missing

    def order_after_a_freeze(*arguments: Any) -> None:
        _end_lease(first)
        assert second.leadership.acquire()
        second.tick(3)
        order_missing(*arguments)

    monkeypatch.setattr(first.controller._reconciler, "order_missing", order_after_a_freeze)
    with suppress(NotLeading):
        first.tick(1)
    assert len(second.store.instances.of_job(job)) == 2
    assert (len(second.cloud.running()), first.cloud.launch_calls) == (2, 0)
    second.assert_nothing_leaked()


def test_a_leader_whose_lease_ends_before_a_call_leaves_the_call_to_its_successor(
    worlds: tuple[LedWorld, LedWorld],
) -> None:
    first, second = worlds
    waiting: list[Callable[[], None]] = []

    class Later:
        def submit(self, call: Callable[[], None]) -> None:
            waiting.append(call)

    first.workers = Later()
    first.restart()
    job = first.submit()
    for world in worlds:
        world.set_target(job, 1)
    first.tick(1)
    assert len(waiting) == 1
    _end_lease(first)
    assert second.leadership.acquire()
    second.tick(1)
    waiting.pop()()
    assert (first.cloud.launch_calls, second.cloud.launch_calls) == (0, 1)
    second.tick(4)
    assert len(second.training(job)) == 1
    second.assert_nothing_leaked()
