"""Commands that stay, while their controller comes and goes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from rich.text import Text

from autoscaler.cli.live import show
from autoscaler.cli.waiting import LogLines, drain, follow_logs
from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import Unavailable
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


def test_a_line_in_parts_is_printed_once_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    lines = LogLines()
    for instance, text in (("a", "one\ntw"), ("b", "else\r"), ("a", "o\r\n\nth"), ("b", "\nx")):
        lines.print_part(LogPart(instance, len(text), text))
    assert capsys.readouterr().out == "a | one\na | two\na | \nb | else\n"
    lines.print_rest()
    assert capsys.readouterr().out == "a | th\nb | x\n"


def test_a_log_is_followed_through_a_restart_of_the_controller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    controller = Logged("first ", None, "line\nthe", " end")
    follow_logs(controller, "job", True, VirtualClock())  # type: ignore[arg-type]
    assert capsys.readouterr().out == "i | first line\ni | the end\n"


class Emptying:
    """A controller that has less at each turn; in some it is away."""

    def __init__(self, clock: VirtualClock, *turns: Mapping[str, object] | None) -> None:
        self._clock = clock
        self._turns = list(turns)
        self.drained = 0

    def drain(self) -> None:
        self.drained += 1

    def fleet(self) -> SimpleNamespace:
        self._clock.advance(1.0)
        turn = self._turns.pop(0)
        if turn is None:
            raise Unavailable("away")
        nothing = {"instances": (), "strays": frozenset(), "silent": frozenset(), "trouble": None}
        return SimpleNamespace(ticked_seconds=self._clock.now(), **{**nothing, **turn})


def test_a_drain_ends_once_nothing_is_left_twice_in_a_row() -> None:
    clock, told = VirtualClock(), list[str]()
    silent = {"silent": frozenset({"aws"}), "trouble": "aws: throttled"}
    turns = ({"instances": ("a", "b")}, {"instances": ("a", "b")}, None, {}, silent)
    controller = Emptying(clock, *turns, {"strays": frozenset({"i-1"})}, {}, {})
    drain(controller, told.append, clock)  # type: ignore[arg-type]
    assert told == [
        "2 instances",
        "the controller is away",
        "aws does not say what runs: aws: throttled",
        "i-1, which nobody ordered",
    ]
    assert controller.drained == 9


def test_a_drain_without_a_controller_says_so() -> None:
    class Absent:
        def drain(self) -> None:
            raise Unavailable("away")

    with pytest.raises(Unavailable):
        drain(Absent(), print, VirtualClock())  # type: ignore[arg-type]


def test_without_following_an_absent_controller_is_said_to_be() -> None:
    with pytest.raises(Unavailable):
        follow_logs(Logged(None), "job", False, VirtualClock())  # type: ignore[arg-type]


def test_a_view_stays_while_no_controller_answers(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([Text("as it is"), Unavailable("away"), Text("as it is later"), None])

    def render() -> Text:
        match next(moments):
            case Text() as text:
                return text
            case Unavailable() as error:
                raise error
        raise KeyboardInterrupt

    show(render, True, VirtualClock())
    assert "as it is later" in capsys.readouterr().out
