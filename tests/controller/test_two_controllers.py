"""Two controllers that act on one store by mistake order what one of them would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autoscaler.domain.instance import HeldInstance
from autoscaler.domain.job import JobSpec
from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Decision
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
