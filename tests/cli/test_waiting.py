"""Commands that stay, while their controller comes and goes."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from rich.text import Text

from autoscaler.cli.live import show
from autoscaler.cli.waiting import LogLines, follow_logs
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
