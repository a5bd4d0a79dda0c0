from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.gpu_use import GpuUse
from autoscaler.domain.instance import InstancePhase
from autoscaler.node.files.logs import LogShipping
from autoscaler.node.heartbeats import Heartbeats
from autoscaler.node.outbox import Outbox, Standing
from autoscaler.node.script.gpu_meter import GpuMeter
from autoscaler.wire.messages import NodeReply, NodeReport, Wanted
from autoscaler.wire.node_client import NodeClient
from tests.node.test_outbox import FAILURE

REPLY = NodeReply(Wanted.RUN, attempt=1, start_seconds=None, devices_used=1, drain_seconds=90.0)


class Connection:
    """A controller's client that goes wrong at first, in a way that nobody foresaw."""

    def __init__(self) -> None:
        self.tried = 0
        self.heard: list[NodeReport] = []
        self.waited_seconds: list[float] = []
        self.due_seconds: float | None = None

    interval_seconds = 0.0
    part_bytes = 1 << 18

    def append_log(self, offset: int, text: bytes, job: str) -> int:
        raise OSError(5, "Input/output error")

    def heartbeat(self, report: NodeReport, wait_seconds: float = 0.0) -> NodeReply:
        self.tried += 1
        if self.tried == 1:
            raise RuntimeError("an accident")
        self.heard.append(report)
        self.waited_seconds.append(wait_seconds)
        return replace(REPLY, heartbeat_seconds=self.due_seconds)


def test_nothing_silences_them_and_no_failure_is_lost(tmp_path: Path) -> None:
    clock, connection = SystemClock(), Connection()
    client = cast(NodeClient, connection)
    outbox = Outbox("job-0")
    outbox.stand(Standing(InstancePhase.TRAINING, attempt=1, devices_used=1))
    outbox.add_failure(FAILURE)
    logs = LogShipping(tmp_path / "job.log", connection, clock, "job")
    nowhere = tmp_path / "nowhere" / "answered"
    heartbeats = Heartbeats(client, outbox, logs, nowhere, 600.0, clock)
    told = threading.Event()
    heartbeats.on_reply = told.set
    heartbeats.start()
    assert told.wait(60)
    assert heartbeats.reply == REPLY
    assert connection.heard[0].failure == FAILURE
    assert not outbox.holds_failure


def test_they_carry_the_use_of_the_gpus(tmp_path: Path) -> None:
    clock, connection = VirtualClock(), Connection()
    connection.tried = 1
    outbox = Outbox("job-0")
    outbox.stand(Standing(InstancePhase.TRAINING, attempt=1, devices_used=1))
    logs = LogShipping(tmp_path / "job.log", connection, clock, "job")
    client = cast(NodeClient, connection)
    heartbeats = Heartbeats(client, outbox, logs, tmp_path / "answered", 600.0, clock)
    heartbeats._send_report()
    use = GpuUse(1, 0.5, 0.5, 10, 80)
    heartbeats.gpus = GpuMeter(clock, lambda: use)
    heartbeats.gpus.look()
    assert not outbox.has_news
    heartbeats._send_report()
    assert [report.gpu_use for report in connection.heard] == [None, use]


def test_the_controller_says_when_the_next_one_is_due(tmp_path: Path) -> None:
    clock, connection = VirtualClock(), Connection()
    connection.tried, connection.due_seconds = 1, 100.0
    outbox = Outbox("job-0")
    outbox.stand(Standing(InstancePhase.TRAINING, attempt=1, devices_used=1, is_done=True))
    logs = LogShipping(tmp_path / "job.log", connection, clock, "job")
    client = cast(NodeClient, connection)
    heartbeats = Heartbeats(client, outbox, logs, tmp_path / "answered", 600.0, clock)
    waits = {heartbeats._send_report() for _ in range(20)}
    assert len(waits) > 1 and all(90.0 <= wait <= 110.0 for wait in waits)
    assert max(connection.waited_seconds) <= 25.0, "the controller refuses longer waits"
