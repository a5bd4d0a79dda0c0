"""Launchers of a gang as real processes: one world over two instances."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from autoscaler.domain.gang import PEER_ENDED_STATUS
from tests.builders.ports import free_port
from tests.builders.waiting import wait_until

SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", total.item(), "rank", dist.get_rank(), flush=True)
if os.environ["RANK"] == sys.argv[1]:
    sys.exit(3)
while sys.argv[1] != "none":
    time.sleep(0.1)
dist.destroy_process_group()
"""


class Gang:
    """Launchers of two instances with one rank each; rank `fails`, or `none` does."""

    def __init__(self, directory: Path, fails: str) -> None:
        script = directory / "script.py"
        script.write_text(SCRIPT)
        self.logs = [directory / f"{index}.log" for index in range(2)]
        address = f"127.0.0.1:{free_port()}"
        self.launchers = [
            subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "autoscaler.training.launch"),
                    *("--gang", str(index), "2", address, "job.1.1", "127.0.0.1", "1"),
                    *(sys.executable, str(script), fails),
                ],
                stdout=log.open("w"),
                stderr=subprocess.STDOUT,
                env=os.environ | {"HOME": str(directory)},
            )
            for index, log in enumerate(self.logs)
        ]

    def wait(self) -> list[int]:
        """Return the exit statuses of the launchers."""
        return [launcher.wait(150) for launcher in self.launchers]

    def wait_until_begun(self) -> None:
        wait_until(lambda: all("sum" in log.read_text() for log in self.logs), "ranks", 100.0)


def test_the_ranks_of_two_instances_are_one_world(tmp_path: Path) -> None:
    gang = Gang(tmp_path, "none")
    assert gang.wait() == [0, 0]
    for rank, log in enumerate(gang.logs):
        assert log.read_text() == f"sum 2.0 rank {rank}\n", "a job's log is the job's"


def test_a_failure_of_one_instance_is_one_failure(tmp_path: Path) -> None:
    gang = Gang(tmp_path, "1")
    assert gang.wait() == [PEER_ENDED_STATUS, 1]


@pytest.mark.parametrize("index", [0, 1])
def test_ranks_end_with_those_of_a_stopped_instance(tmp_path: Path, index: int) -> None:
    gang = Gang(tmp_path, "no rank")
    gang.wait_until_begun()
    gang.launchers[index].send_signal(signal.SIGTERM)
    statuses = gang.wait()
    assert statuses[index] == 128 + signal.SIGTERM
    assert statuses[1 - index] == PEER_ENDED_STATUS


def test_ranks_end_with_a_lost_leader(tmp_path: Path) -> None:
    gang = Gang(tmp_path, "no rank")
    gang.wait_until_begun()
    leader = psutil.Process(gang.launchers[0].pid)
    for process in [leader, *leader.children(recursive=True)]:
        process.kill()
    assert gang.wait() == [-signal.SIGKILL, PEER_ENDED_STATUS]
