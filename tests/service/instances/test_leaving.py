from __future__ import annotations

from autoscaler.domain.report import CheckpointStatus
from tests.service.agents import joined, node_report, training_report
from tests.service.conftest import Api


def test_an_agent_is_told_how_long_its_script_may_take_to_leave(api: Api) -> None:
    held, node = joined(api)
    assert node.heartbeat(node_report(held)).drain_seconds == 90.0
    slow = training_report(checkpoint=CheckpointStatus(step=5, seconds=100.0))
    assert node.heartbeat(node_report(held, reports=(slow,))).drain_seconds == 420.0


def test_an_agent_is_told_how_often_its_script_takes_checkpoints(api: Api) -> None:
    held, node = joined(api)
    assert node.heartbeat(node_report(held)).checkpoint_interval_seconds is None
    api.world.controller.status.checkpoint_intervals = {held.job: 75.0}
    assert node.heartbeat(node_report(held)).checkpoint_interval_seconds == 75.0
