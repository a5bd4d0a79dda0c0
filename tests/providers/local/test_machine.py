from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autoscaler.domain.errors import NotFound, Unavailable
from autoscaler.domain.instance import CloudState
from providers.local.instance import LOST, RECLAIMED, TERMINATED, LocalInstance
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings, default_catalogue
from tests.conformance.provider import THEIRS, end, find, order, state
from tests.providers.local.cloud import (
    QUICK,
    LocalCloud,
    python_agent,
    read_json,
    spot_offer,
    wait_until,
)
from tests.providers.local.conftest import CloudMaker

NOTE_START = 'printf "%s\\n" $$ >> starts; '

DAEMON = """
import os, signal, sys
def forked(): return os.fork() == 0
if forked():
    os.setsid()
    if forked():
        open("daemon.new", "w").write(str(os.getpid()))
        os.rename("daemon.new", "daemon")
        if sys.argv[1] == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: signal.pause()
    os._exit(0)
os.wait()
"""


def cause_of_end(cloud: LocalCloud, instance_id: str) -> str:
    ended = LocalInstance(cloud.path(instance_id)).end
    assert ended is not None
    return ended.cause


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("manner", ["obedient", "deaf"])
def test_a_daemon_without_the_mark_ends_with_its_instance(
    make_cloud: CloudMaker, tmp_path: Path, manner: str
) -> None:
    script = tmp_path / "daemon.py"
    script.write_text(DAEMON)
    agent = ("/bin/sh", "-c", f"env -i python3 {script} {manner}; exec sleep 600")
    cloud = make_cloud(agent=agent)
    provider = cloud.connect()
    instance = provider.launch(order(provider, "1")).id
    wait_until((cloud.disk(instance) / "daemon").exists)
    daemon = int((cloud.disk(instance) / "daemon").read_text())
    assert daemon not in cloud.remains(instance)
    assert is_alive(daemon)
    end(cloud, provider, instance)
    assert not is_alive(daemon)
    assert cause_of_end(cloud, instance) == TERMINATED


def test_an_agent_that_dies_is_started_again(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(agent=("/bin/sh", "-c", NOTE_START + "exit 3"))
    provider = cloud.connect()
    instance = provider.launch(order(provider, "1")).id
    starts = cloud.disk(instance) / "starts"
    wait_until(lambda: starts.exists() and len(set(starts.read_text().split())) >= 2)
    assert state(provider, instance) is CloudState.RUNNING


def test_an_agent_that_lives_is_not_started_again(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(agent=("/bin/sh", "-c", NOTE_START + "(sleep 0 &) ; exec sleep 600"))
    provider = cloud.connect()
    instance = cloud.launch_running(provider, order(provider, "1"))
    alive = cloud.path(instance) / "alive"
    first = alive.stat().st_mtime
    wait_until(lambda: alive.stat().st_mtime > first + 0.7)
    assert len((cloud.disk(instance) / "starts").read_text().split()) == 1


def test_an_agent_that_can_not_be_started_is_told_of(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(agent=("/no/such/agent",))
    provider = cloud.connect()
    instance = cloud.launch_running(provider, order(provider, "1"))
    console = cloud.path(instance) / "console.log"
    wait_until(lambda: "/no/such/agent: No such file" in console.read_text())
    end(cloud, provider, instance)


def test_nothing_runs_before_the_boot_is_over(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(catalogue=default_catalogue(boot_seconds=3600.0))
    provider = cloud.connect()
    instance = provider.launch(order(provider, "1")).id
    alive = cloud.path(instance) / "alive"
    first = alive.stat().st_mtime
    wait_until(lambda: alive.stat().st_mtime > first + 0.3)
    assert state(provider, instance) is CloudState.PENDING
    assert list(cloud.remains(instance)) == []
    end(cloud, provider, instance)


def test_the_agent_finds_its_user_data_and_nothing_of_the_controller(
    make_cloud: CloudMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter2")
    tell = "import json, os, sys; text = open(sys.argv[1]).read();"
    tell += "json.dump([text, dict(os.environ)], open('told', 'w'))"
    cloud = make_cloud(agent=python_agent(tell))
    provider = cloud.connect()
    disk = cloud.disk(provider.launch(order(provider, "1")).id)
    wait_until(lambda: read_json(disk / "told"))
    text, environment = read_json(disk / "told")
    assert text == "join 1"
    assert environment["PATH"] == os.environ["PATH"]
    assert "hunter2" not in environment.values()
    assert disk.parent.stat().st_mode & 0o066 == 0
    assert (disk.parent / "user-data").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("order_end", [LocalProvider.terminate, LocalProvider.reclaim])
def test_an_instance_is_stopping_as_long_as_something_of_it_runs(
    make_cloud: CloudMaker, order_end: Callable[[LocalProvider, Any], None]
) -> None:
    deaf = ("/bin/sh", "-c", "trap '' TERM; touch deaf; while :; do sleep 0.05; done")
    cloud = make_cloud(agent=deaf, notice_period_seconds=0.0, grace_seconds=60.0)
    provider = cloud.connect()
    instance = provider.launch(order(provider, "1")).id
    wait_until((cloud.disk(instance) / "deaf").exists)
    order_end(provider, instance if order_end is LocalProvider.reclaim else [instance])
    wait_until(lambda: state(provider, instance) is CloudState.STOPPING)
    assert cloud.remains(instance)
    cloud.kill_machine(instance)
    assert state(provider, instance) is CloudState.TERMINATED


def test_power_button(cloud: LocalCloud, provider: LocalProvider) -> None:
    instance = cloud.launch_running(provider, order(provider, "1"))
    os.kill(cloud.machine(instance), signal.SIGTERM)
    wait_until(lambda: state(provider, instance) is CloudState.TERMINATED)
    assert cause_of_end(cloud, instance) == TERMINATED
    assert list(cloud.remains(instance)) == []


def test_a_lost_machine_ends_its_instance(cloud: LocalCloud, provider: LocalProvider) -> None:
    instance = cloud.launch_running(provider, order(provider, "1"))
    wait_until(lambda: cloud.remains(instance))
    cloud.kill_machine(instance)
    assert cloud.remains(instance)
    before_seconds = time.time()
    assert state(provider, instance) is CloudState.TERMINATED
    assert list(cloud.remains(instance)) == []
    assert cause_of_end(cloud, instance) == LOST
    ended = find(provider, instance)
    assert ended is not None
    assert ended.ended_seconds is not None
    assert ended.ended_seconds >= before_seconds
    assert find(cloud.connect(), instance) == ended


def test_the_cores_of_a_lost_machine_are_sold_again(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(devices=LocalSettings().devices[:1])
    provider = cloud.connect()
    lost = cloud.launch_running(provider, order(provider, "1"))
    cloud.kill_machine(lost)
    provider.launch(order(provider, "2"))
    assert state(provider, lost) is CloudState.TERMINATED


def test_an_instance_of_a_computer_that_was_off_ended_when_it_was_last_seen(
    cloud: LocalCloud, provider: LocalProvider
) -> None:
    instance = cloud.launch_running(provider, order(provider, "1"))
    wait_until(lambda: cloud.remains(instance))
    (agent,) = cloud.remains(instance)
    os.kill(cloud.machine(instance), signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    cloud.kill_machine(instance)
    wait_until(lambda: not cloud.remains(instance))
    seen_seconds = time.time() - 3600
    os.utime(cloud.path(instance) / "alive", (seen_seconds, seen_seconds))
    ended = find(provider, instance)
    assert ended is not None
    assert ended.ended_seconds == pytest.approx(seen_seconds)


def test_a_machine_that_can_not_start_is_no_instance(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(devices=(100_000,))
    provider = cloud.connect()
    with pytest.raises(Unavailable, match=r"can't boot: see .*console\.log"):
        provider.launch(order(provider, "1"))
    (broken,) = provider.instances()
    assert broken.state is CloudState.PENDING
    end(cloud, provider, broken.id)


def test_the_agent_is_told_of_a_reclaim(make_cloud: CloudMaker) -> None:
    watch = """
import os, time
from providers.metadata import read_metadata, reclaim_notice
metadata = read_metadata(os.environ)
while reclaim_notice(metadata) is None: time.sleep(0.01)
print(reclaim_notice(metadata), file=open("noticed", "w"), flush=True)
"""
    cloud = make_cloud(agent=python_agent(watch), notice_period_seconds=60.0)
    provider = cloud.connect()
    instance = cloud.launch_running(provider, order(provider, "1"))
    provider.reclaim(instance)
    noticed = cloud.disk(instance) / "noticed"
    wait_until(lambda: read_json(noticed))
    (notice,) = provider.interruptions()
    assert notice.reclaim_seconds == read_json(noticed)
    assert notice.reclaim_seconds - notice.notice_seconds == pytest.approx(60.0)
    assert state(provider, instance) is CloudState.RUNNING


def test_the_hazard_reclaims_with_notice(make_cloud: CloudMaker) -> None:
    hazardous = spot_offer(reclaims_per_hour=3600.0 * 100)
    cloud = make_cloud(catalogue=(*QUICK.catalogue, hazardous))
    provider = cloud.connect()
    instance = provider.launch(replace(order(provider, "1"), offer=hazardous.id)).id
    wait_until(provider.interruptions)
    wait_until(lambda: state(provider, instance) is CloudState.TERMINATED)
    assert cause_of_end(cloud, instance) == RECLAIMED


def test_lifetimes_follow_the_seed(make_cloud: CloudMaker) -> None:
    hazardous = spot_offer(reclaims_per_hour=1.0)

    def lifetime(number: int, **settings: Any) -> float:
        cloud = make_cloud(catalogue=(*QUICK.catalogue, hazardous), **settings)
        cloud.directory = cloud.directory / str(number)
        provider = cloud.connect()
        launched = provider.launch(replace(order(provider, "1"), offer=hazardous.id))
        seconds = LocalInstance(cloud.path(launched.id)).record.reclaim_after_seconds
        assert seconds is not None
        return seconds

    assert lifetime(1, seed=7) == lifetime(2, seed=7) != lifetime(3, seed=8)


def test_only_what_is_held_can_be_reclaimed(cloud: LocalCloud, provider: LocalProvider) -> None:
    with pytest.raises(NotFound, match="i-none"):
        provider.reclaim("i-none")
    instance = provider.launch(order(provider, "1")).id
    with pytest.raises(NotFound):
        cloud.connect(THEIRS).reclaim(instance)
    end(cloud, provider, instance)
    with pytest.raises(NotFound):
        provider.reclaim(instance)
