"""How replicas come to miss their lighthouse."""

from __future__ import annotations

import socket

import pytest

from autoscaler.clock import SystemClock

quorum = pytest.importorskip("autoscaler.training.quorum", reason="torchft is not installed")


def test_one_whose_host_is_gone_without_a_word_is_missed_within_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        watch = quorum._LighthouseWatch(
            f"http://127.0.0.1:{server.getsockname()[1]}", 1.5, SystemClock()
        )
        connection = watch._connection
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, between, tries = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + between * tries <= 6
        watch.stop()
