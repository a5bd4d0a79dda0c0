"""Messages of an agent to the service manager of its instance."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobSpec
from autoscaler.node.watchdog import INTERVAL_SECONDS, Watchdog
from tests.node.site import STEADY, Site

SIGN_OF_LIFE = b"READY=1\nWATCHDOG=1"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        yield manager


def heard(manager: socket.socket) -> list[bytes]:
    manager.setblocking(False)
    told = []
    while True:
        try:
            told.append(manager.recv(1000))
        except BlockingIOError:
            return told


def test_it_is_fed_at_every_interval(manager: socket.socket) -> None:
    clock = VirtualClock(0.0)
    watchdog = Watchdog({"NOTIFY_SOCKET": manager.getsockname()}, clock)
    assert heard(manager) == [], "the agent has not joined"
    for _ in range(3):
        watchdog.feed()
    assert heard(manager) == [SIGN_OF_LIFE]
    clock.advance(INTERVAL_SECONDS)
    watchdog.feed()
    assert heard(manager) == [SIGN_OF_LIFE]


def test_an_address_may_be_abstract(tmp_path: Path) -> None:
    name = f"castor{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        Watchdog({"NOTIFY_SOCKET": f"@{name}"}, VirtualClock(0.0)).feed()
        assert heard(manager) == [SIGN_OF_LIFE]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": "/no/such/socket"}])
def test_an_agent_that_nobody_listens_to_goes_on(environ: dict[str, str]) -> None:
    Watchdog(environ, VirtualClock(0.0)).feed()


def test_an_agent_feeds_it_and_its_script_can_not(site: Site, manager: socket.socket) -> None:
    site.variables["NOTIFY_SOCKET"] = manager.getsockname()
    site.serve(JobSpec("job", STEADY))
    instance = site.launch()
    assert manager.recv(1000) == SIGN_OF_LIFE
    instance.wait_for(InstancePhase.TRAINING)
    scripts = instance.processes("steady.py")
    assert scripts and not any("NOTIFY_SOCKET" in each.environ() for each in scripts)
