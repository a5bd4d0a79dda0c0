"""One job's growth can't bend another's measurements: nobody leaves the cores that are sold."""

from __future__ import annotations

import os
from dataclasses import replace

import psutil
import pytest

from providers.local.settings import LocalSettings
from tests.conformance.provider import order
from tests.providers.local.cloud import python_agent, read_json, wait_until
from tests.providers.local.conftest import CloudMaker

CORES = LocalSettings().devices
pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")

TELL_CORES = """
import json, os, signal
print(json.dumps(sorted(os.sched_getaffinity(0))), file=open("cores", "w"), flush=True)
signal.pause()
"""

WIDEN = """
import json, os, signal, threading
everything = json.load(open("everything"))
def widen(file):
    os.sched_setaffinity(0, everything)
    print(json.dumps(sorted(os.sched_getaffinity(0))), file=open(file, "w"), flush=True)
widen("process")
def stay():
    widen("thread")
    signal.pause()
print(os.getpid(), file=open("pid", "w"), flush=True)
threading.Thread(target=stay).start()
"""


def test_instances_start_on_cores_of_their_own(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(agent=python_agent(TELL_CORES))
    provider = cloud.connect()
    disks = [cloud.disk(provider.launch(order(provider, token)).id) for token in ("1", "2")]
    wait_until(lambda: all(read_json(disk / "cores") for disk in disks))
    assert [read_json(disk / "cores") for disk in disks] == [[CORES[0]], [CORES[1]]]


def test_a_large_instance_has_two_cores(make_cloud: CloudMaker) -> None:
    cloud = make_cloud(agent=python_agent(TELL_CORES))
    provider = cloud.connect()
    disk = cloud.disk(provider.launch(replace(order(provider, "1"), offer="local-large")).id)
    wait_until(lambda: read_json(disk / "cores"))
    assert read_json(disk / "cores") == list(CORES[:2])


def test_processes_and_threads_that_widen_their_mask_are_pulled_back(
    make_cloud: CloudMaker,
) -> None:
    script = f"open('everything', 'w').write('{list(CORES)}')\n{WIDEN}"
    cloud = make_cloud(agent=python_agent(script))
    provider = cloud.connect()
    disk = cloud.disk(provider.launch(order(provider, "1")).id)
    wait_until(lambda: read_json(disk / "thread"))
    assert read_json(disk / "process") == read_json(disk / "thread") == list(CORES)
    agent = psutil.Process(int((disk / "pid").read_text()))
    threads = [thread.id for thread in agent.threads()]
    assert len(threads) == 2
    wait_until(lambda: all(os.sched_getaffinity(thread) == {CORES[0]} for thread in threads))
