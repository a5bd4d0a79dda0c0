from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import TrainingDirective, TrainingSetup
from autoscaler.domain.transfer import MeterReading, Transfer
from autoscaler.node.channel.line import (
    DeclaredPhase,
    DeviceLimit,
    EndedEarly,
    Line,
    Stepped,
    Word,
    parse_message,
)
from autoscaler.node.disk import Disk
from autoscaler.training.channel import AgentConnection, tell_out_of_memory
from tests.node.site import wait_until
from tests.node.test_outbox import REPORT

SETUP = TrainingSetup(
    job="job",
    replica="job-0",
    attempt=2,
    device_kind="cpu-core",
    lighthouse=None,
    bind_address="127.0.0.1",
    peer_token="token",
    checkpoint_directory="/somewhere",
    checkpoint_interval_seconds=60.0,
    checkpoints_kept=2,
    batch=BatchSpec(),
    total_examples=None,
    heartbeat_timeout_seconds=1.5,
    collective_timeout_seconds=20.0,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


@pytest.fixture
def channel(path: Path) -> Iterator[AgentConnection]:
    """The training process's end."""
    channel = AgentConnection(str(path), SystemClock())
    yield channel
    channel.close()


def test_each_hears_the_other(path: Path, channel: AgentConnection) -> None:
    news = threading.Event()
    line = Line(path, news.set)
    line.open_to(SETUP, None)
    assert channel.setup() == SETUP
    line.direct(TrainingDirective(drain=True))
    wait_until(lambda: channel.directive.drain)
    channel.stepped(3, 7)
    channel.report(REPORT)
    channel.waits()
    channel.left()
    channel.done()
    channel.finished()
    channel.finished(is_complete=False)
    channel.finished(is_complete=False, stop_reason="no progress\n" + 300 * "é")
    channel.finished(is_complete=True, stop_reason="of no use")
    channel.diverged()
    channel.out_of_memory()
    channel.out_of_memory(8)
    channel.phase("evaluation", 600)
    channel.phase(None)
    heard = []
    wait_until(lambda: heard.extend(line.hear()) or len(heard) == 14)
    tell_out_of_memory(str(path), 4)  # returns once it was read
    heard += line.hear()
    early = [EndedEarly(None), EndedEarly("no progress" + 189 * "é")]
    words = [Word.WAITS, Word.LEFT, Word.DONE, Word.FINISHED, *early, Word.FINISHED, Word.DIVERGED]
    phases = [DeclaredPhase("evaluation", 600.0), DeclaredPhase(None, 0.0)]
    last = [Word.OUT_OF_MEMORY, DeviceLimit(8), *phases, DeviceLimit(4)]
    assert heard == [Stepped(3), REPORT, *words, *last]
    assert news.is_set()


def test_what_was_sent_is_heard_of_at_once_and_by_each_agent_anew(
    path: Path, channel: AgentConnection
) -> None:
    first_heard: list[MeterReading] = []
    first = Line(path, lambda: None, on_reading=first_heard.append)
    channel.meter.add(Transfer(sent_bytes=5))
    wait_until(lambda: first_heard and first_heard[-1] == channel.meter.read())
    assert first.hear() == [], "a turn of the agent has nothing to do with it"
    for _ in range(3):
        channel.meter.add(Transfer(fetched_bytes=7))
    wait_until(lambda: first_heard[-1].transfer == Transfer(5, 21))
    second_heard: list[MeterReading] = []
    Line(path, lambda: None, on_reading=second_heard.append)
    for connection in first._connections:
        connection.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: second_heard, "the channel connects again")
    assert second_heard[-1] == first_heard[-1]


def test_what_was_sent_last_is_told_before_the_process_ends(path: Path) -> None:
    heard: list[MeterReading] = []
    line = Line(path, lambda: None, on_reading=heard.append)
    channel = AgentConnection(str(path), SystemClock())
    for _ in range(100):
        channel.meter.add(Transfer(sent_bytes=1))
    channel.finished()
    channel.close()
    wait_until(lambda: line.hear() == [Word.FINISHED])
    assert heard[-1].transfer == Transfer(sent_bytes=100)


def test_it_is_quiet_when_nobody_is_connected(path: Path) -> None:
    line = Line(path, lambda: None)
    assert line.is_quiet
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        peer.sendall(b'{"kind": "left"}\n')
        wait_until(lambda: not line.is_quiet)
    wait_until(lambda: line.is_quiet)
    assert line.hear() == [Word.LEFT], "what was said before it hung up was heard"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_is_quiet_also_where_a_message_could_not_be_taken_in(path: Path) -> None:
    told = threading.Event()

    def refuse() -> None:
        told.set()
        raise ArithmeticError("an accident")

    others = set(threading.enumerate())
    line = Line(path, refuse)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        peer.sendall(b'{"kind": "left"}\n')
        assert told.wait(60)
        wait_until(lambda: line.is_quiet)
    for thread in set(threading.enumerate()) - others:
        if thread.name == "castor-line-in":
            thread.join(60)


def test_a_new_agent_takes_the_line_over_and_says_no_more_than_it_knows(
    path: Path, channel: AgentConnection
) -> None:
    first = Line(path, lambda: None)
    first.open_to(SETUP, None)
    first.direct(TrainingDirective(drain=True))
    wait_until(lambda: channel.directive.drain)
    second = Line(path, lambda: None)
    second.open_to(SETUP, None)
    for connection in first._connections:
        connection.shutdown(socket.SHUT_RDWR)  # as the death of the first agent would
    wait_until(lambda: not second.is_quiet, "the channel connects again")
    assert channel.directive.drain, "what was heard last is in force"
    second.direct(TrainingDirective(drain=False))
    wait_until(lambda: not channel.directive.drain)


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind": "transfer", "transfer": {"meter": "a", "transfer": {"sent_bytes": -1}}}',
        b'{"kind": "transfer", "transfer": {"meter": "a", "transfer": {"sent_bytes": 1e300}}}',
        b'{"kind": "transfer", "transfer": {"transfer": {"sent_bytes": 1}}}',
        b'{"kind": "transfer", "transfer": {"meter": "' + b"a" * 65 + b'", "transfer": {}}}',
        b"garbage\n",
        b"[1]\n",
        b"{}\n",
        b'{"kind": "stepped"}\n',
        b'{"kind": "stepped", "steps": "many"}\n',
        b'{"kind": "report", "report": {"step": 1}}\n',
        b"\xff\xfe\n",
        b'{"kind": "stepped", "steps": Infinity}\n',
        b'{"kind": ' + b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_message_is_passed_over(line: bytes) -> None:
    assert parse_message(line) is None


def test_a_report_that_json_can_not_carry_on_is_passed_over() -> None:
    broken = {**asdict(REPORT), "learning_rate": float("nan")}
    assert parse_message(json.dumps({"kind": "report", "report": broken}).encode()) is None
    partly = {**asdict(REPORT), "metrics": {"loss": float("inf"), "accuracy": 0.5}}
    report = parse_message(json.dumps({"kind": "report", "report": partly}).encode())
    assert getattr(report, "metrics", None) == {"accuracy": 0.5}


def test_a_directory_may_be_too_deep_for_a_socket_s_address(tmp_path: Path) -> None:
    disk = Disk(tmp_path / ("deep" * 40))
    Line(disk.socket(), lambda: None)
    assert disk.socket().is_relative_to(disk.directory), "what goes with the disk is not left over"
    line = Line(disk.socket(), lambda: None)
    channel = AgentConnection(str(disk.socket()), SystemClock())
    line.open_to(SETUP, None)
    assert channel.setup() == SETUP
    channel.close()
