"""Logs of jobs, while their controller comes and goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from autoscaler.cli.logs import LogReader, print_logs
from autoscaler.cli.tables import clock_time
from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import Unavailable, UnknownInstance
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.wire.messages import LogPart


class Logged:
    """A controller with a job whose log grows with each question; some find it away."""

    def __init__(self, *growth: str | None) -> None:
        self._growth = list(growth)
        self._text = ""

    def job(self, name: str) -> SimpleNamespace:
        phase = JobPhase.RUNNING if self._growth else JobPhase.FINISHED
        return SimpleNamespace(id=name, phase=phase)

    def logs(self, name: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        offset = offsets.get("i", 0)
        if offset == len(self._text) and self._growth:
            more = self._growth.pop(0)
            if more is None:
                raise Unavailable("away")
            self._text += more
        text = self._text[offset:]
        return (LogPart("i", len(self._text), text),) if text else ()


def show(
    controller: object,
    follow: bool,
    tail: int | None = None,
    as_json: bool = False,
    instance: str | None = None,
) -> None:
    clock = VirtualClock()
    print_logs(controller, "job", clock, follow, tail, as_json, instance)  # type: ignore[arg-type]


def test_a_line_in_parts_is_read_once_and_whole() -> None:
    reader = LogReader()
    parts = (("a", "one\ntw"), ("b", "else\r"), ("a", "o\r\n\nth"), ("b", "\nx"))
    lines = reader.lines([LogPart(instance, len(text), text) for instance, text in parts])
    read = [(line.instance, line.text) for line in lines]
    assert read == [("a", "one"), ("a", "two"), ("a", ""), ("b", "else")]
    assert [line.text for line in reader.rest()] == ["th", "x"]


def test_a_log_is_followed_through_a_restart_of_the_controller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(Logged("first ", None, "line\nthe", " end"), follow=True)
    assert capsys.readouterr().out == "i | first line\ni | the end\n"


def test_a_line_has_the_time_at_which_its_beginning_was_received(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader = LogReader()
    first = LogPart("i", 9, "one\ntwo\nt", ((0, 10.0), (4, 20.0)))
    second = LogPart("i", 13, "hree\n", ((0, 30.0),))
    lines = [*reader.lines([first]), *reader.lines([second])]
    assert [(line.text, line.seconds) for line in lines] == [
        ("one", 10.0),
        ("two", 20.0),
        ("three", 20.0),
    ]


class Ended:
    """A controller with the whole log of a job of two instances, which it has cut."""

    def job(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(id=name, phase=JobPhase.FINISHED)

    def logs(self, name: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        if "a" in offsets:
            return ()
        assert offsets["*"] < 0
        cut = LogPart("a", 20, "t of a cut line\none\ntwo\n", ((0, 5.0),), 7)
        return cut, LogPart("b", 6, "only\n", ((0, 5.0),))


def test_the_last_lines_of_each_instance(capsys: pytest.CaptureFixture[str]) -> None:
    show(Ended(), follow=False, tail=2)
    time = clock_time(5.0)
    assert capsys.readouterr().out == f"{time} a | one\n{time} a | two\n{time} b | only\n"


def test_lines_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    show(Ended(), follow=False, tail=1, as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        {"instance": "a", "seconds": 5.0, "text": "two"},
        {"instance": "b", "seconds": 5.0, "text": "only"},
    ]


def test_the_log_of_one_instance(capsys: pytest.CaptureFixture[str]) -> None:
    show(Ended(), follow=False, tail=2, instance="b")
    assert capsys.readouterr().out == f"{clock_time(5.0)} b | only\n"
    show(Logged("line\nthe", " end"), follow=True, instance="i")
    assert capsys.readouterr().out == "i | line\ni | the end\n"


def test_an_instance_without_a_log_is_an_error_that_names_those_with_one() -> None:
    with pytest.raises(UnknownInstance, match='no log of instance "c": the job has logs of a, b'):
        show(Ended(), follow=False, tail=2, instance="c")


class Silent:
    """A controller with a job that has no log, whose instances are in these phases."""

    def __init__(self, phase: JobPhase, *instances: InstancePhase) -> None:
        held = [SimpleNamespace(phase=instance) for instance in instances]
        self._job = SimpleNamespace(id="job", phase=phase, instances=held)

    def job(self, name: str) -> SimpleNamespace:
        return self._job

    def logs(self, name: str, offsets: Mapping[str, int]) -> tuple[LogPart, ...]:
        return ()


@pytest.mark.parametrize(
    ("controller", "reason"),
    [
        (Silent(JobPhase.PENDING), "no log yet, since its script has not started"),
        (
            Silent(JobPhase.PENDING, InstancePhase.BOOTING),
            "no log yet, since its script has not started",
        ),
        (
            Silent(JobPhase.RUNNING, InstancePhase.BOOTING, InstancePhase.TRAINING),
            "its script has printed nothing yet",
        ),
        (Silent(JobPhase.FINISHED), "it has ended, and its script printed nothing"),
    ],
)
def test_a_job_without_a_log_says_why_beside_the_output(
    controller: Silent, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(controller, follow=False)
    assert capsys.readouterr() == ("", f"job: {reason}\n")


def test_without_following_an_absent_controller_is_said_to_be() -> None:
    with pytest.raises(Unavailable):
        show(Logged(None), follow=False)


def test_a_log_can_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(Logged("\x1b[31mred\x1b[0m \x1b[2J\x1b]0;title\x07 5%\r10%\n"), follow=False)
    out = capsys.readouterr().out
    assert out == r"i | red \x1b[2J\x1b]0;title\x07 5%" + "\ni | 10%\n"
