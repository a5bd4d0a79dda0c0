from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.training import Engine
from autoscaler.lighthouse.host import LighthouseHost, LighthouseSettings
from autoscaler.lighthouse.order import LighthouseDirectory
from autoscaler.lighthouse.supervisor import find_torchft, load_torchft
from tests.builders.waiting import wait_until

pytestmark = pytest.mark.skipif(find_torchft() is None, reason="torchft is not installed")

START_AND_DIE = """
import os, pathlib, signal, subprocess, sys
from autoscaler.clock import SystemClock
from autoscaler.lighthouse.host import LighthouseHost
run = subprocess.run
def run_and_die(*args, **kwargs):
    run(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
subprocess.run = run_and_die
LighthouseHost(pathlib.Path(sys.argv[1]), "127.0.0.1", SystemClock()).ensure("job")
"""


def connect(directory: Path) -> LighthouseHost:
    return LighthouseHost(directory, "127.0.0.1", SystemClock())


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LighthouseHost]:
    host = connect(tmp_path)
    yield host
    for job in host.running():
        host.release(job)


def supervisor(directory: Path, job: str = "job") -> psutil.Process:
    pid = LighthouseDirectory(directory / job).supervisor
    assert pid is not None
    return psutil.Process(pid)


def server(directory: Path, job: str = "job") -> psutil.Process:
    (child,) = supervisor(directory, job).children()
    return child


def is_gone(process: psutil.Process) -> bool:
    """Return whether the process has ended, even if its parent has not reaped it yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def heartbeat(address: str) -> bool:
    """Speak to the server as a replica does."""
    client = load_torchft().LighthouseClient(address, timedelta(seconds=2))
    client.heartbeat("replica", timedelta(seconds=2))
    return True


def test_a_lighthouse_answers_replicas(host: LighthouseHost) -> None:
    assert heartbeat(host.ensure("job"))


def test_it_is_started_once_and_found_again(host: LighthouseHost, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        addresses = set(threads.map(lambda _: connect(tmp_path).ensure("job"), range(4)))
    first = server(tmp_path).pid
    assert addresses == {host.ensure("job")}
    assert server(tmp_path).pid == first
    assert host.running() == {"job": addresses.pop()}


def test_jobs_have_their_own(host: LighthouseHost) -> None:
    assert host.ensure("one") != host.ensure("two")
    assert set(host.running()) == {"one", "two"}


def test_a_server_that_dies_is_back_on_its_port(host: LighthouseHost, tmp_path: Path) -> None:
    address = host.ensure("job")
    killed = server(tmp_path)
    killed.kill()
    killed.wait()
    wait_until(lambda: supervisor(tmp_path).children())
    assert host.ensure("job") == address
    assert heartbeat(address)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems can't reserve a port")
def test_no_other_program_gets_the_port_of_a_server_that_died(
    host: LighthouseHost, tmp_path: Path
) -> None:
    address = host.ensure("job")
    supervisor(tmp_path).suspend()
    try:
        killed = server(tmp_path)
        killed.kill()
        wait_until(lambda: is_gone(killed))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", int(address.rpartition(":")[2])))
    finally:
        supervisor(tmp_path).resume()
    assert host.ensure("job") == address
    assert heartbeat(address)


def test_one_whose_supervisor_was_killed_is_started_again_on_its_port(
    host: LighthouseHost, tmp_path: Path
) -> None:
    address = host.ensure("job")
    orphan = server(tmp_path)
    supervisor(tmp_path).kill()
    wait_until(lambda: is_gone(orphan))
    wait_until(lambda: host.running() == {})
    assert host.ensure("job") == address
    assert heartbeat(address)


def test_a_controller_killed_while_it_starts_one_finds_it(
    host: LighthouseHost, tmp_path: Path
) -> None:
    died = subprocess.run([sys.executable, "-P", "-c", START_AND_DIE, str(tmp_path)], check=False)
    assert died.returncode == -signal.SIGKILL
    first = supervisor(tmp_path).pid
    assert heartbeat(host.ensure("job"))
    assert supervisor(tmp_path).pid == first


def test_it_does_not_belong_to_the_session_of_its_controller(
    host: LighthouseHost, tmp_path: Path
) -> None:
    host.ensure("job")
    assert os.getsid(supervisor(tmp_path).pid) != os.getsid(0)


def test_a_released_one_is_gone_and_its_port_is_free(host: LighthouseHost, tmp_path: Path) -> None:
    port = int(host.ensure("job").rpartition(":")[2])
    gone = [supervisor(tmp_path), server(tmp_path)]
    host.release("job")
    host.release("job")
    assert host.running() == {}
    wait_until(lambda: all(is_gone(each) for each in gone))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def test_a_port_that_was_taken_meanwhile_is_given_up(host: LighthouseHost, tmp_path: Path) -> None:
    address = host.ensure("job")
    supervisor(tmp_path).kill()
    wait_until(lambda: not host.running())
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = int(address.rpartition(":")[2])
        wait_until(lambda: squatter.connect_ex(("127.0.0.1", port)) != 0)
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        moved = host.ensure("job")
        assert moved != address
        assert heartbeat(moved)


def test_where_torchft_is_missing_there_is_a_roster(
    host: LighthouseHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchft", None)
    address = host.ensure("job")
    assert address.startswith("roster://")
    first = server(tmp_path)
    first.kill()
    wait_until(lambda: is_gone(first))
    assert host.ensure("job") == address


def test_a_job_keeps_its_engine_when_torchft_is_there_again(
    host: LighthouseHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "torchft", None)
        address = host.ensure("job")
    supervisor(tmp_path).kill()
    wait_until(lambda: not host.running())
    assert host.ensure("job") == address
    assert host.ensure("another").startswith("http://")


def test_the_owner_may_choose_to_go_without_torchft(tmp_path: Path) -> None:
    settings = LighthouseSettings(engine=Engine.ROSTER)
    host = LighthouseHost(tmp_path, "127.0.0.1", SystemClock(), settings)
    assert host.ensure("job").startswith("roster://")
    host.release("job")


def test_supervisor_and_server_are_small(host: LighthouseHost, tmp_path: Path) -> None:
    """Neither imports torch, which alone takes 200 MB."""
    host.ensure("job")
    for process in (supervisor(tmp_path), server(tmp_path)):
        assert process.memory_info().rss < 60e6
        assert not any("libtorch" in region.path for region in process.memory_maps())
