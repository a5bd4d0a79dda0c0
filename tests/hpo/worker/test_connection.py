from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

from autoscaler.clock import SystemClock
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.training import TrainingDirective
from autoscaler.domain.transfer import MeterReading, Transfer
from autoscaler.domain.trial import TrialAnswer, TrialCall, TrialFile
from autoscaler.node.channel.line import Line
from hpo.worker.connection import TrialConnection
from tests.builders.waiting import wait_until
from tests.node.channel.test_line import SETUP


class Agent:
    """An agent's end of the line, which keeps what it is told."""

    def __init__(self, path: Path, keeps: bool = True) -> None:
        self.calls: list[TrialCall] = []
        self._keeps = keeps
        self.line = Line(path, lambda: None, self._take)

    def _take(self, call: TrialCall) -> None:
        if not self._keeps:
            raise OSError("no space left")
        self.calls.append(call)


def test_what_is_told_is_kept_and_what_is_asked_is_answered(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    line = TrialConnection(tmp_path / "agent.sock", SystemClock())
    line.tell("a report")
    assert agent.calls == [TrialCall(1, "a report")]
    file = TrialFile("best", "its SHA-256")

    def answer() -> None:
        wait_until(lambda: len(agent.calls) == 2)
        assert agent.calls[1] == TrialCall(2, "a question", file, is_question=True)
        agent.line.answer(TrialAnswer(1, "nobody asked"))
        agent.line.answer(TrialAnswer(2, "an answer"))

    thread = threading.Thread(target=answer)
    thread.start()
    assert line.ask("a question", file) == "an answer"
    thread.join()
    line.close()


def test_the_agent_may_come_later_and_come_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    line = TrialConnection(path, SystemClock())
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(line.ask("a question")))
    asking.start()
    time.sleep(0.05)
    first = Agent(path)
    wait_until(lambda: first.calls)
    second = Agent(path)  # in the place of the first, whose connection goes with it
    for connection in list(first.line._connections):
        connection.shutdown(2)
    wait_until(lambda: second.calls)
    assert second.calls == first.calls == [TrialCall(1, "a question", is_question=True)]
    second.line.answer(TrialAnswer(1, "at last"))
    asking.join(60.0)
    assert answers == ["at last"]
    line.close()


def test_what_the_agent_can_not_keep_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    full = Agent(path, keeps=False)
    line = TrialConnection(path, SystemClock())
    telling = threading.Thread(target=lambda: line.tell("a report"))
    telling.start()
    telling.join(0.3)
    assert telling.is_alive()
    roomy = Agent(path)
    for connection in list(full.line._connections):
        connection.shutdown(2)
    telling.join(60.0)
    assert not telling.is_alive()
    assert roomy.calls == [TrialCall(1, "a report")]
    line.close()


def test_who_is_to_leave_does_not_wait_for_a_driver_that_is_gone(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    agent.line.direct(TrainingDirective(drain=False))
    patient = TrialConnection(tmp_path / "agent.sock", SystemClock())
    line = TrialConnection(tmp_path / "agent.sock", SystemClock(), drain_timeout_seconds=0.05)
    ended = list[object]()

    def ask(line: TrialConnection) -> None:
        try:
            ended.append(line.ask("a question"))
        except SystemExit as error:
            ended.append(error.code)

    threads = [threading.Thread(target=ask, args=(each,)) for each in (line, patient)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(agent.calls) == 2)
    time.sleep(0.1)
    assert ended == []
    agent.line.direct(TrainingDirective(drain=True))
    threads[0].join(60.0)
    assert ended == [0]
    agent.line.answer(TrialAnswer(1, "at last"))
    threads[1].join(60.0)
    assert ended == [0, "at last"]
    line.close()
    patient.close()


def test_what_is_kept_of_a_trial_is_told_to_whoever_is_its_agent(tmp_path: Path) -> None:
    place, path, grant = f"file://{tmp_path}/depot", tmp_path / "agent.sock", tmp_path / "grant"
    grant.write_text(json.dumps(asdict(StorageGrant(place))))
    line = TrialConnection(path, SystemClock())
    heard: list[MeterReading] = []
    agent = Line(path, lambda: None, on_reading=heard.append)
    agent.open_to(replace(SETUP, depot=place, grant_file=str(grant)), None)
    remote_checkpoints = line.remote_checkpoints()
    assert remote_checkpoints is not None
    remote_checkpoints.put("state", b"12345")
    wait_until(lambda: heard and heard[-1].transfer == Transfer(sent_bytes=5))
    later: list[MeterReading] = []
    Line(path, lambda: None, on_reading=later.append)
    for connection in list(agent._connections):
        connection.shutdown(2)
    wait_until(lambda: later)
    remote_checkpoints.get("state")
    wait_until(lambda: later[-1].transfer == Transfer(5, 5))
    assert {reading.meter for reading in (*heard, *later)} == {line.meter.read().meter}
    line.close()
