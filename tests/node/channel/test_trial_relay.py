from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Conflict, Unavailable
from autoscaler.domain.job import JobSpec
from autoscaler.domain.trial import TrialAnswer, TrialCall, TrialFile
from autoscaler.node.channel.trial_relay import KeptCalls, TrialRelay
from autoscaler.node.state import Start
from autoscaler.wire.messages import Assignment
from autoscaler.wire.study_messages import TrialCalls
from tests.node.controller import FakeController
from tests.node.site import Site, wait_until

START = Start(attempt=1, devices_used=1, started_seconds=5.0, log_offset=0)


def calls(*numbers: int) -> tuple[TrialCall, ...]:
    return tuple(TrialCall(number, f"call {number}") for number in numbers)


class Controller:
    """A controller's side that answers all it is told, when it is not away."""

    def __init__(self) -> None:
        self.told: list[TrialCall] = []
        self.files: dict[str, bytes] = {}
        self.is_away = False
        self.is_superseded = False
        self.tries = 0
        self.is_slow = False
        self.asked_later = 0
        self._changed = threading.Condition()

    def begin_trial(self, started_seconds: float, job: str | None = None) -> int:
        self._be_there()
        return 1

    def tell_trial(
        self, told: TrialCalls, after: int = 0, wait_seconds: float = 0.0
    ) -> tuple[TrialAnswer, ...]:
        self._be_there()
        with self._changed:
            known = {call.number for call in self.told}
            self.told += [call for call in told.calls if call.number not in known]
            self._changed.notify_all()
            return () if self.is_slow or not wait_seconds else self._answers(after)

    def trial_answers(
        self, incarnation: int, after: int, wait_seconds: float, job: str | None = None
    ) -> tuple[TrialAnswer, ...]:
        self._be_there()
        self.asked_later += 1
        with self._changed:
            self._changed.wait_for(lambda: any(call.number > after for call in self.told), 0.2)
            return self._answers(after)

    def _answers(self, after: int) -> tuple[TrialAnswer, ...]:
        return tuple(
            TrialAnswer(call.number, f"re: {call.text}")
            for call in self.told
            if call.number > after
        )

    def put_trial_file(self, sha256: str, file: BinaryIO) -> None:
        self._be_there()
        self.files[sha256] = file.read()

    def _be_there(self) -> None:
        self.tries += 1
        if self.is_superseded:
            raise Conflict("another start holds it")
        if self.is_away:
            raise Unavailable("away")


class RecordedAnswers(list[TrialAnswer]):
    def numbers(self) -> list[int]:
        return sorted({answer.number for answer in self})


@pytest.fixture
def assignment(tmp_path: Path) -> Iterator[Assignment]:
    spec = JobSpec("sweep-0", ("python",), study="sweep")
    controller = FakeController(spec, tmp_path, {})
    yield controller.assignment
    controller.close()


def relay_of(controller: Any, path: Path) -> tuple[TrialRelay, RecordedAnswers]:
    relay, heard = TrialRelay(controller, path, SystemClock()), RecordedAnswers()
    relay.on_answer = heard.append
    return relay, heard


def test_calls_go_on_and_answers_come_back(tmp_path: Path, assignment: Assignment) -> None:
    controller = Controller()
    relay, heard = relay_of(controller, tmp_path / "calls")
    relay.serve(assignment, START)
    for call in calls(1, 2, 3):
        relay.take(call)
    wait_until(lambda: heard.numbers() == [1, 2, 3], "the answers")
    assert controller.told == list(calls(1, 2, 3))
    assert heard[0] == TrialAnswer(1, "re: call 1")
    before = len(heard)
    relay.take(calls(2)[0])  # its worker has connected again
    assert heard[before:] == [TrialAnswer(2, "re: call 2")]


@pytest.mark.parametrize("is_slow", [False, True])
def test_answers_are_asked_for_only_where_they_take_long(
    tmp_path: Path, assignment: Assignment, is_slow: bool
) -> None:
    controller = Controller()
    controller.is_slow = is_slow
    relay, heard = relay_of(controller, tmp_path / "calls")
    relay.serve(assignment, START)
    for number in (1, 2, 3):
        relay.take(replace(calls(number)[0], is_question=True))
        wait_until(lambda: heard.numbers()[-1:] == [number], "the answer")  # noqa: B023
    assert (controller.asked_later > 0) is is_slow


class NotingClock(SystemClock):
    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_a_report_waits_for_its_question_and_a_question_for_nothing(
    tmp_path: Path, assignment: Assignment
) -> None:
    clock = NotingClock()
    relay, heard = TrialRelay(Controller(), tmp_path / "calls", clock), RecordedAnswers()  # type: ignore[arg-type]
    relay.on_answer = heard.append
    relay.serve(assignment, START)
    relay.take(replace(calls(1)[0], is_question=True))
    wait_until(lambda: heard.numbers() == [1], "the answer to the question")
    assert clock.slept == []
    relay.take(calls(2)[0])
    wait_until(lambda: heard.numbers() == [1, 2], "the answer to the report")
    assert len(clock.slept) == 1


def test_a_file_goes_before_its_call_and_only_from_where_checkpoints_are(
    tmp_path: Path, assignment: Assignment
) -> None:
    controller = Controller()
    directory = Path(assignment.checkpoint_directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "best").write_bytes(b"weights")
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_bytes(b"not the job's")
    (directory / "link").symlink_to(secret)
    names = {1: "best", 2: "link", 3: str(secret), 4: "gone"}
    relay, heard = relay_of(controller, tmp_path / "calls")
    relay.serve(assignment, START)
    for number, name in names.items():
        relay.take(TrialCall(number, "keep it", TrialFile(name, f"sha of {number}")))
    wait_until(lambda: heard.numbers() == [1, 2, 3, 4], "the answers")
    assert controller.files == {"sha of 1": b"weights"}
    assert controller.told == [TrialCall(number, "keep it") for number in names]


def test_what_is_told_while_nobody_hears_is_told_later(
    tmp_path: Path, assignment: Assignment
) -> None:
    controller = Controller()
    controller.is_away = True
    relay, heard = relay_of(controller, tmp_path / "calls")
    relay.serve(assignment, START)
    for call in calls(1, 2):
        relay.take(call)
    wait_until(lambda: controller.tries >= 2, "it was tried")
    assert controller.told == []
    controller.is_away = False
    wait_until(lambda: heard.numbers() == [1, 2], "the answers")
    assert controller.told == list(calls(1, 2))


def test_what_an_agent_had_not_told_the_next_one_tells(
    tmp_path: Path, assignment: Assignment
) -> None:
    nobody, controller = Controller(), Controller()
    nobody.is_away = True
    first, _ = relay_of(nobody, tmp_path / "calls")
    first.serve(assignment, START)
    for call in calls(1, 2):
        first.take(call)
    second, heard = relay_of(controller, tmp_path / "calls")
    second.serve(assignment, START)
    wait_until(lambda: heard.numbers() == [1, 2], "the answers")


def test_a_start_that_was_overtaken_gives_up(tmp_path: Path, assignment: Assignment) -> None:
    controller = Controller()
    controller.is_superseded = True
    relay, heard = relay_of(controller, tmp_path / "calls")
    relay.serve(assignment, START)
    relay.take(calls(1)[0])
    wait_until(lambda: controller.tries == 1, "it was tried")
    SystemClock().sleep(0.6)
    assert controller.tries == 1 and heard == []


def test_of_an_earlier_start_nothing_is_told(tmp_path: Path, assignment: Assignment) -> None:
    kept = KeptCalls(tmp_path / "calls", 5.0)
    for call in calls(1, 2):
        assert kept.keep(call)
    kept.close()
    assert KeptCalls(tmp_path / "calls", 5.0).last_number == 2
    controller = Controller()
    relay, heard = relay_of(controller, tmp_path / "calls")
    relay.serve(assignment, replace(START, started_seconds=9.0))
    relay.take(TrialCall(1, "anew"))
    wait_until(lambda: heard.numbers() == [1], "the answer")
    assert [call.text for call in controller.told] == ["anew"]


def test_what_was_cut_off_is_no_call(tmp_path: Path) -> None:
    kept = KeptCalls(tmp_path / "calls", 5.0)
    for call in calls(1, 2):
        kept.keep(call)
    kept.close()
    whole = (tmp_path / "calls").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "calls").write_bytes(whole[:length])
        left = KeptCalls(tmp_path / "calls", 5.0)
        assert left.after(0) == calls(1, 2)[: left.last_number]
        left.close()


def test_of_a_job_that_is_no_trial_nothing_is_kept(tmp_path: Path, assignment: Assignment) -> None:
    relay, _ = relay_of(Controller(), tmp_path / "calls")
    relay.serve(replace(assignment, spec=replace(assignment.spec, study=None)), START)
    relay.take(calls(1)[0])
    assert not (tmp_path / "calls").exists()


def test_a_trial_is_one_process_on_however_many_devices(site: Site) -> None:
    script = (
        "from os import environ as e; print('ranks', e.get('LOCAL_RANK'), e['CASTOR_DEVICES'])"
    )
    spec = JobSpec("job", (sys.executable, "-c", script), study="sweep")
    controller = site.serve(spec)
    controller.want(devices_used=2)
    instance = site.launch(devices=2)
    wait_until(lambda: instance.is_complete, "the end")
    wait_until(lambda: "ranks" in controller.log, "what it printed")
    assert controller.log.count("ranks") == 1
    assert "ranks None 0,1" in controller.log
