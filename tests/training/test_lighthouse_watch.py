"""Detection of a lost lighthouse by replicas."""

from __future__ import annotations

import socket

from autoscaler.clock import SystemClock
from autoscaler.training.members.attendance import Attendance
from autoscaler.training.members.lighthouse_watch import LighthouseWatch


def test_one_whose_host_is_gone_without_a_word_is_missed_within_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        watch = LighthouseWatch(address, 1.5, Attendance(SystemClock()), SystemClock())
        connection = watch._connection
        assert connection is not None
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, between, tries = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + between * tries <= 6
        watch.stop()
