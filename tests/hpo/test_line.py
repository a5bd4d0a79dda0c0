from __future__ import annotations

import threading
import time
from pathlib import Path

from autoscaler.clock import SystemClock
from autoscaler.domain.training import TrainingDirective
from autoscaler.domain.trial import TrialAnswer, TrialCall, TrialFile
from autoscaler.node.line import Line
from hpo.line import TrialLine


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


def wait_until(condition: object, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_told_is_kept_and_what_is_asked_is_answered(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    line = TrialLine(tmp_path / "agent.sock", SystemClock())
    line.tell("a report")
    assert agent.calls == [TrialCall(1, "a report")]
    file = TrialFile("best", "its SHA-256")

    def answer() -> None:
        wait_until(lambda: len(agent.calls) == 2)
        assert agent.calls[1] == TrialCall(2, "a question", file)
        agent.line.answer(TrialAnswer(1, "nobody asked"))
        agent.line.answer(TrialAnswer(2, "an answer"))

    thread = threading.Thread(target=answer)
    thread.start()
    assert line.ask("a question", file) == "an answer"
    thread.join()
    line.close()


def test_the_agent_may_come_later_and_come_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    line = TrialLine(path, SystemClock())
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
    assert second.calls == first.calls == [TrialCall(1, "a question")]
    second.line.answer(TrialAnswer(1, "at last"))
    asking.join(10.0)
    assert answers == ["at last"]
    line.close()


def test_what_the_agent_can_not_keep_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    full = Agent(path, keeps=False)
    line = TrialLine(path, SystemClock())
    telling = threading.Thread(target=lambda: line.tell("a report"))
    telling.start()
    telling.join(0.3)
    assert telling.is_alive()
    roomy = Agent(path)
    for connection in list(full.line._connections):
        connection.shutdown(2)
    telling.join(10.0)
    assert not telling.is_alive()
    assert roomy.calls == [TrialCall(1, "a report")]
    line.close()


def test_who_is_to_leave_does_not_wait_for_a_driver_that_is_gone(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "agent.sock")
    agent.line.direct(TrainingDirective(drain=False))
    patient = TrialLine(tmp_path / "agent.sock", SystemClock())
    line = TrialLine(tmp_path / "agent.sock", SystemClock(), leaves_after_seconds=0.05)
    ended = list[object]()

    def ask(line: TrialLine) -> None:
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
    threads[0].join(10.0)
    assert ended == [0]
    agent.line.answer(TrialAnswer(1, "at last"))
    threads[1].join(10.0)
    assert ended == [0, "at last"]
    line.close()
    patient.close()
