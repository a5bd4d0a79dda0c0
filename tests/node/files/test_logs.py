from __future__ import annotations

import re
from pathlib import Path

import httpcore
import pytest

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.errors import Unavailable
from autoscaler.node.files.logs import LogShipping, last_lines, write_line
from autoscaler.wire.node_client import NodeClient
from tests.fakes.connections import Answering


class Copy:
    """The controller's copy of a log."""

    def __init__(self, text: bytes = b"") -> None:
        self.text = text
        self.is_away = False
        self.sizes: list[int] = []

    interval_seconds = 0.0
    part_bytes = 1 << 18

    def append_log(self, offset: int, text: bytes, job: str) -> int:
        client = NodeClient("http://controller", "token", Answering(self._answer))
        return client.append_log(offset, text, job)

    def _answer(self, request: httpcore.Request, chunk: bytes) -> tuple[int, bytes]:
        if self.is_away:
            raise httpcore.ConnectError("away")
        (offset,) = map(int, re.findall(rb"offset=(\d+)", request.url.target))
        self.sizes.append(len(chunk))
        if offset <= len(self.text) < offset + len(chunk):
            self.text = self.text[:offset] + chunk
        return 200, str(len(self.text)).encode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job.log"


def test_a_log_is_handed_in_as_it_grows(log: Path) -> None:
    copy = Copy()
    shipping = LogShipping(log, copy, SystemClock(), "job")
    shipping.ship(1.0)
    log.write_bytes(b"one\n")
    shipping.ship(1.0)
    log.write_bytes(b"one\ntwo")
    shipping.ship(1.0)
    assert copy.text == b"one\ntwo"
    shipping.ship(1.0)
    assert copy.sizes == [0, 4, 3]


def test_a_new_agent_goes_on_where_the_copy_ends(log: Path) -> None:
    copy = Copy(b"one\n")
    log.write_bytes(b"one\ntwo\n")
    LogShipping(log, copy, SystemClock(), "job").ship(1.0)
    assert copy.text == b"one\ntwo\n"
    assert copy.sizes == [0, 4]


def test_what_was_not_taken_is_handed_in_again(log: Path) -> None:
    copy = Copy()
    shipping = LogShipping(log, copy, SystemClock(), "job")
    log.write_bytes(b"one\n")
    copy.is_away = True
    with pytest.raises(Unavailable):
        shipping.ship(1.0)
    copy.is_away = False
    shipping.ship(1.0)
    assert copy.text == b"one\n"


def test_a_long_log_takes_several_calls(log: Path) -> None:
    copy = Copy()
    log.write_bytes(bytes(1_000_000))
    shipping = LogShipping(log, copy, VirtualClock(), "job")
    shipping.ship(0.0)
    shipping.ship(0.0)
    assert 0 < len(copy.text) < 1_000_000
    shipping.ship(1.0)
    assert len(copy.text) == 1_000_000
    assert max(copy.sizes) <= 1 << 18


def test_the_last_lines_are_those_of_the_last_start(log: Path) -> None:
    assert last_lines(log, 0, 3) == ()
    log.write_bytes(b"old\n")
    offset = log.stat().st_size
    assert last_lines(log, offset, 3) == ()
    log.write_bytes(b"old\na\n\xffb\nc\nd\n")
    assert last_lines(log, offset, 3) == ("\ufffdb", "c", "d")
    assert last_lines(log, offset, 9) == ("a", "\ufffdb", "c", "d")


def test_castors_own_lines_are_told_apart(log: Path) -> None:
    write_line(log, "data[0].source: /x is not on this instance")
    assert last_lines(log, 0, 9) == ("castor: data[0].source: /x is not on this instance",)
