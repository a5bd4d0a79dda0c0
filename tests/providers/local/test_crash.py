"""A controller that dies at any line loses no instance and doubles none."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.domain.errors import InsufficientCapacity
from autoscaler.domain.instance import CloudState
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings
from tests.conformance.provider import end, find, order, state
from tests.providers.local.cloud import LocalCloud, wait_until
from tests.providers.local.conftest import CloudMaker

CONTROLLER = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from autoscaler.domain.errors import InsufficientCapacity
from providers.local import host
from tests.conformance.provider import order
from tests.providers.local.cloud import QUICK, LocalCloud

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

directory, how, token = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
settings = QUICK
if how == "before-rename":
    Path.rename = die
elif how == "before-machine":
    host.LocalHost._start_machine = die
elif how == "last-core":
    settings = replace(QUICK, devices=QUICK.devices[:1])
provider = LocalCloud(directory, settings).connect()
if how == "last-core":
    print("ready", flush=True)
    sys.stdin.readline()
try:
    provider.launch(order(provider, token))
    print("launched", flush=True)
except InsufficientCapacity:
    print("refused", flush=True)
if how == "after":
    die()
"""


def start_controller(directory: Path, how: str, token: str = "1") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, str(directory), how, token],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def die_while_launching(cloud: LocalCloud, how: str) -> None:
    with start_controller(cloud.directory, how) as controller:
        assert controller.wait() == -signal.SIGKILL


def test_an_instance_outlives_its_controller_and_is_adopted(cloud: LocalCloud) -> None:
    die_while_launching(cloud, "after")
    provider = cloud.connect()
    (adopted,) = provider.instances()
    wait_until(lambda: state(provider, adopted.id) is CloudState.RUNNING)
    assert provider.launch(order(provider, "1")).id == adopted.id
    end(cloud, provider, adopted.id)
    assert list(cloud.remains(adopted.id)) == []


def test_a_launch_that_died_before_the_order_was_written_never_was(cloud: LocalCloud) -> None:
    die_while_launching(cloud, "before-rename")
    provider = cloud.connect()
    assert list(provider.instances()) == []
    launched = provider.launch(order(provider, "1"))
    wait_until(lambda: state(provider, launched.id) is CloudState.RUNNING)


@pytest.mark.parametrize("who", ["the same call", "the list"])
def test_a_launch_that_died_before_its_machine_started_is_completed(
    cloud: LocalCloud, who: str
) -> None:
    die_while_launching(cloud, "before-machine")
    provider = cloud.connect()
    if who == "the same call":
        provider.launch(order(provider, "1"))
    (completed,) = provider.instances()
    wait_until(lambda: state(provider, completed.id) is CloudState.RUNNING)
    wait_until(lambda: cloud.remains(completed.id))
    assert len(cloud.remains(completed.id)) == 1


def test_a_launch_that_died_before_its_machine_started_can_be_ended(cloud: LocalCloud) -> None:
    die_while_launching(cloud, "before-machine")
    provider = cloud.connect()
    (path,) = (cloud.directory / "instances").iterdir()
    provider.terminate([path.name])
    ended = find(provider, path.name)
    assert ended is not None
    assert ended.state is CloudState.TERMINATED
    assert not (path / "alive").exists()


def test_processes_that_race_for_the_last_core(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(devices=LocalSettings().devices[:1])
    racers = [start_controller(cloud.directory, "last-core", str(token)) for token in range(3)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    outcomes = sorted(racer.communicate("go\n")[0] for racer in racers)
    assert outcomes == ["launched\n", "refused\n", "refused\n"]
    assert len(cloud.connect().instances()) == 1


def test_deployments_share_the_cores(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(devices=LocalSettings().devices[:1])
    others: LocalProvider = cloud.connect("theirs")
    others.launch(order(others, "1", "theirs"))
    provider = cloud.connect()
    with pytest.raises(InsufficientCapacity, match="takes 1 cores and 0 are free"):
        provider.launch(order(provider, "1"))
