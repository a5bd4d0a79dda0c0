"""Start of a training by joiners that torchft's lighthouse has put into one quorum."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.training.members.admission import Admission
from autoscaler.training.members.attendance import Attendance
from autoscaler.training.members.lighthouse_watch import LighthouseWatch

MEMBERS = ("d:1", "e:2")


@dataclass
class Lighthouse:
    """A lighthouse that says at each time whom it hears, and how long ago."""

    clock: VirtualClock
    heard: Callable[[float], dict[str, float] | None]

    def silences(self) -> dict[str, float] | None:
        return self.heard(self.clock.monotonic())


def admission(
    heard: Callable[[float], dict[str, float] | None],
) -> tuple[Admission, VirtualClock]:
    clock = VirtualClock()
    began_seconds = clock.monotonic()
    lighthouse = Lighthouse(clock, lambda now_seconds: heard(now_seconds - began_seconds))
    return Admission(lighthouse, 1.5, clock), clock


def test_joiners_begin_where_nobody_else_is_heard() -> None:
    its_admission, clock = admission(lambda _: dict.fromkeys(MEMBERS, 0.1))
    began_seconds = clock.monotonic()
    assert its_admission.may_begin(MEMBERS)
    assert clock.monotonic() == began_seconds


def test_one_that_has_just_fallen_silent_is_waited_for_until_it_is_missed() -> None:
    its_admission, clock = admission(
        lambda seconds: {"a:0": 0.9 + seconds} if 0.9 + seconds < 1.5 else {}
    )
    began_seconds = clock.monotonic()
    assert its_admission.may_begin(MEMBERS)
    assert clock.monotonic() - began_seconds == pytest.approx(0.6, abs=0.11)


@pytest.mark.parametrize(
    ("heard", "within_seconds"),
    [
        pytest.param(lambda _: {"a:0": 0.2}, 0.2, id="another one is alive"),
        pytest.param(lambda _: {"a:0": 0.9}, 5.2, id="a silence that does not grow"),
        pytest.param(lambda _: None, 5.2, id="a lighthouse that never answers"),
    ],
)
def test_joiners_do_not_begin_and_do_not_wait_for_long(
    heard: Callable[[float], dict[str, float] | None], within_seconds: float
) -> None:
    its_admission, clock = admission(heard)
    began_seconds = clock.monotonic()
    assert not its_admission.may_begin(MEMBERS)
    assert clock.monotonic() - began_seconds <= within_seconds


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        ({"b:0": 0.2, "a:0": 0.2}, "waited 30 s for a, b, heard by the lighthouse and not"),
        (None, "s for the lighthouse's list of live replicas: its status page"),
    ],
)
def test_the_log_says_every_half_minute_what_is_awaited(
    heard: dict[str, float] | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    its_admission, clock = admission(lambda _: heard)
    began_seconds = clock.monotonic()
    while clock.monotonic() - began_seconds < 65:
        assert not its_admission.may_begin(MEMBERS)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert words in messages[0]


def test_a_lighthouse_that_accepts_and_never_answers_hears_nobody_knowably() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        watch = LighthouseWatch(address, 1.5, Attendance(SystemClock()), SystemClock())
        assert watch.silences() is None
        watch.stop()
