from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from autoscaler.domain.errors import Conflict
from autoscaler.node.shims.process import Process, kill_marked
from autoscaler.node.shims.shim import ShimOrder
from tests.node.site import wait_until

PATH = {"PATH": os.environ["PATH"]}
DEAF = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"


class Place:
    """A directory with one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log"
        self.process = self.another()

    def another(self) -> Process:
        """The same process as another agent finds it."""
        return Process(self.path / "record", self.log, PATH)

    def start(self, script: str, **order: object) -> None:
        fields = {"environment": PATH, **order}
        self.process.start(ShimOrder(("sh", "-c", script), str(self.path), **fields))  # type: ignore[arg-type]

    def run(self, script: str, **order: object) -> int | None:
        self.start(script, **order)
        wait_until(lambda: self.process.wait(1.0))
        return self.process.exit_code

    def wait_for(self, text: str) -> None:
        wait_until(lambda: self.log.exists() and text in self.log.read_text(), text)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    wait_until(lambda: place.process.kill() or not place.process.is_alive)


@pytest.mark.parametrize(
    ("script", "exit_code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill $$", -15)]
)
def test_an_exit_code_is_what_the_command_ended_with(
    place: Place, script: str, exit_code: int
) -> None:
    assert place.run(script) == exit_code
    assert place.another().exit_code == exit_code


def test_what_is_printed_is_in_the_log_without_secrets(place: Place) -> None:
    place.run("echo one; echo my hidden word >&2; printf hid", secrets=("hidden",))
    place.run("echo two")
    assert place.log.read_text() == "one\nmy *** word\nhidtwo\n"
    assert place.log.stat().st_mode & 0o777 == 0o600


def test_another_agent_finds_what_runs_and_can_end_it(place: Place) -> None:
    place.start("echo here; sleep 600")
    place.wait_for("here")
    other = place.another()
    assert other.is_alive
    assert other.exit_code is None
    with pytest.raises(Conflict, match="its process is running"):
        other.start(ShimOrder(("true",), "/", {}))
    other.stop()
    wait_until(lambda: not other.is_alive)
    assert other.exit_code == -signal.SIGTERM


def test_what_does_not_end_in_its_grace_is_killed(place: Place) -> None:
    place.start(DEAF, grace_seconds=0.2)
    place.wait_for("deaf")
    place.process.stop()
    wait_until(lambda: not place.process.is_alive)
    assert place.process.exit_code == -signal.SIGKILL


def test_there_may_be_no_time_for_grace(place: Place) -> None:
    place.start(DEAF, grace_seconds=600.0)
    place.wait_for("deaf")
    place.process.stop()
    place.process.kill()
    wait_until(lambda: not place.process.is_alive)


def test_what_the_command_leaves_running_ends_with_it(place: Place) -> None:
    leave = "setsid sh -c 'echo $$ > left; exec sleep 600' & while ! test -s left; do :; done"
    assert place.run(f"{leave}; exit 4") == 4
    left = int((place.path / "left").read_text())
    wait_until(lambda: not psutil.pid_exists(left))


def test_a_command_that_closes_its_output_is_waited_for(place: Place) -> None:
    assert place.run("exec >&- 2>&-; sleep 0.2; exit 5") == 5


def test_a_clear_command_runs_before_and_after(place: Place) -> None:
    clear = ("sh", "-c", f"echo x >> {place.path}/cleared")
    place.run("cat cleared", clear=clear)
    assert place.log.read_text() == "x\n"
    assert (place.path / "cleared").read_text() == "x\nx\n"


def test_what_never_ran_has_no_exit_code(place: Place) -> None:
    assert place.process.exit_code is None
    place.run("exit 1")
    place.process.forget()
    assert place.process.exit_code is None


def test_an_order_that_never_came_runs_nothing(place: Place) -> None:
    """End a shim whose agent dies before it sends the order."""
    record = (place.path / "record").open("w")
    shim = [sys.executable, "-P", "-m", "autoscaler.node.shims.shim", str(record.fileno()), "1"]
    subprocess.run(
        shim, pass_fds=[record.fileno()], stdin=subprocess.DEVNULL, env=PATH, check=True
    )
    assert place.process.exit_code is None


def test_a_process_may_be_made_to_end_with_the_agent(place: Place) -> None:
    order = ShimOrder(("sh", "-c", "echo on; sleep 600"), "/", PATH, ends_with_agent=True)
    agent = (
        "import json, sys, time; from pathlib import Path;"
        "from autoscaler.node.shims.process import *;"
        "Process(Path(sys.argv[1]), Path(sys.argv[2]), {}).start("
        "ShimOrder(**json.loads(sys.argv[3]))); time.sleep(600)"
    )
    record, log, text = str(place.path / "record"), str(place.log), json.dumps(asdict(order))
    with subprocess.Popen([sys.executable, "-P", "-c", agent, record, log, text]) as running:
        place.wait_for("on")
        running.kill()
    wait_until(lambda: not place.process.is_alive)


def test_the_marked_can_be_found_without_their_shim(place: Place) -> None:
    order = {**PATH, "CASTOR_SOCKET": str(place.path)}
    place.start("echo $$; exec sleep 600", environment=order)
    place.wait_for("\n")
    pid = int(place.log.read_text())
    psutil.Process(int((place.path / "record").read_text())).kill()
    wait_until(lambda: not place.process.is_alive)
    assert place.process.exit_code == -signal.SIGKILL
    assert psutil.pid_exists(pid)
    kill_marked("CASTOR_SOCKET", str(place.path))
    wait_until(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie", "its end"
    )
