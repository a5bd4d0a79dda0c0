"""The start of an instance, run here, on a stand-in for its metadata service.

A directory is its disk. What it calls of the system only writes down that it was called. What only
systemd and EC2 can show is in the README of the module.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from providers.metadata import identity_proof, read_metadata
from tests.terraform.conftest import MODULE

SERVICE = "http://169.254.169.254"
METADATA = {
    "/latest/meta-data/instance-id": "i-0123456789abcdef0",
    "/latest/meta-data/local-ipv4": "10.80.0.7",
    "/latest/meta-data/tags/instance/castor:token": "order-1",
    "/latest/dynamic/instance-identity/rsa2048": "signed\nby AWS",
}
RECLAIM = "/latest/meta-data/spot/instance-action"
VARIABLES = {
    "region": "us-east-1",
    "bucket": "castor-test",
    "parcels": "user-data",
    "python": "python3",
    "has_wheels": "true",
    "has_index": "true",
    "boot_minutes": "20",
}
CALLED = 'echo "$(basename "$0") $*" >> "$CALLS"\n'
# Each of them may be made to fail by the name of what it is called with.
PROGRAMS = {
    "shutdown": "",
    "systemctl": "",
    "install": 'exec /usr/bin/install "$@"\n',
    "nvidia-smi": "echo GPU 0; echo GPU 1\n",
    "aws": (
        'to=${@: -1}; case "$*" in\n'
        '  *wheels*) mkdir -p "$to"; touch "$to/castor_autoscaler-1-py3-none-any.whl" ;;\n'
        '  *user-data/order-1*) echo parcel > "$to" ;;\n  *) exit 1 ;;\nesac\n'
    ),
    "python3": 'mkdir -p "$3/bin"; ln -s "$(command -v pip)" "$3/bin/pip"\n',
    "pip": "",
}


@dataclass
class Machine:
    """A directory that the start takes for the whole disk."""

    root: Path
    url: str
    metadata: dict[str, str] = field(default_factory=lambda: dict(METADATA))
    failing: str = "nothing"

    def place(self, text: str) -> str:
        """A program of the module, with its paths and addresses here."""
        text = text.replace(SERVICE, self.url)
        return re.sub(r"(?<![\w.])/(run|var|opt|etc)/", rf"{self.root}/\1/", text)

    def start(self) -> int:
        """The exit status of the whole start."""
        (self.root / "etc/systemd/system").mkdir(parents=True)
        (self.root / "run").mkdir()
        programs = self.root / "bin"
        programs.mkdir()
        for name, does in PROGRAMS.items():
            (programs / name).write_text(
                f'#!/bin/bash\n{CALLED}case "{name} $*" in *"$FAILING"*) exit 9 ;; esac\n{does}'
            )
            (programs / name).chmod(0o755)
        told = [f"{name}='{value}'" for name, value in VARIABLES.items()]
        files = [(MODULE / "files" / name).read_text() for name in ("install.sh", "node.sh")]
        return self.run(["bash", "-c", self.place("\n".join([*told, *files]))]).wait(60)

    def run(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            env={
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "CALLS": str(self.root / "calls"),
                "FAILING": self.failing,
            },
            text=True,
        )

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()

    @property
    def unit(self) -> dict[str, str]:
        text = (self.root / "etc/systemd/system/castor-node.service").read_text()
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    machine = Machine(tmp_path, "")

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._say(200, "session")

        def do_GET(self) -> None:
            if self.headers.get("X-aws-ec2-metadata-token") != "session":
                self._say(401, "")
            elif self.path in machine.metadata:
                self._say(200, machine.metadata[self.path])
            else:
                self._say(404, "")

        def _say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    machine.url = f"http://127.0.0.1:{server.server_port}"
    yield machine
    server.shutdown()
    server.server_close()


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)
    return path.read_text()


def test_the_agent_finds_who_it_is_and_the_word_of_its_cloud(machine: Machine) -> None:
    assert machine.start() == 0
    lines = (machine.root / "run/castor/environment").read_text().splitlines()
    metadata = read_metadata(dict(line.split("=", 1) for line in lines))
    assert metadata.instance_id == "i-0123456789abcdef0"
    assert metadata.devices == (0, 1)
    assert metadata.bind_address == "10.80.0.7"
    assert metadata.directory.is_dir() and metadata.cache_directory.is_dir()
    assert identity_proof(metadata) == "signed\nby AWS"
    for name in ("identity", "user-data"):
        assert (machine.root / "run/castor" / name).stat().st_mode & 0o077 == 0


def test_it_is_off_in_minutes_until_the_agent_has_joined(machine: Machine) -> None:
    assert machine.start() == 0
    order = [call for call in machine.calls if call.startswith(("shutdown", "systemctl"))]
    assert order[0].startswith("shutdown -h +20 ")
    assert order[1:] == [
        "systemctl daemon-reload",
        "systemctl start castor-node.service",  # returns when the agent says that it has joined
        "shutdown -c",
    ]
    assert machine.unit["Type"] == "notify"


@pytest.mark.parametrize(
    "failing",
    [
        "user-data/order-1",
        "wheels",
        "pip install",
        "python3 -m venv",
        "systemctl start",
    ],
)
def test_a_start_that_fails_anywhere_ends_the_instance_at_once(
    machine: Machine, failing: str
) -> None:
    machine.failing = failing
    assert machine.start() != 0
    assert machine.calls[-1] == "shutdown -h now castor: the start failed"
    assert "shutdown -c" not in machine.calls


@pytest.mark.parametrize("path", sorted(METADATA))
def test_without_its_metadata_an_instance_ends(machine: Machine, path: str) -> None:
    del machine.metadata[path]
    assert machine.start() != 0
    assert machine.calls[-1] == "shutdown -h now castor: the start failed"


def test_an_agent_that_dies_or_hangs_takes_the_instance_with_it(machine: Machine) -> None:
    assert machine.start() == 0
    assert machine.unit["ExecStopPost"] == "/bin/systemctl --no-block poweroff"
    assert machine.unit["NotifyAccess"] == "all", "the agent is not the unit's first process"
    assert machine.unit["WatchdogSec"] == "300"
    assert "Restart" not in machine.unit
    agent = machine.root / "opt/castor/bin/castor"
    agent.write_text(f"#!/bin/bash\necho $$ > {machine.root}/agent\nexec sleep 600\n")
    agent.chmod(0o755)
    unit = machine.run(["bash", str(machine.root / "run/castor/machine")])
    os.kill(int(wait_for(machine.root / "agent") or 0), signal.SIGKILL)
    assert unit.wait(20) != 0


def test_the_agent_presses_the_power_button(machine: Machine) -> None:
    assert machine.start() == 0
    agent = machine.root / "opt/castor/bin/castor"
    says = f"echo $* > {machine.root}/agent"
    agent.write_text(f"#!/bin/bash\n{says}\nkill -TERM $PPID\nexec sleep 600\n")
    agent.chmod(0o755)
    assert machine.run(["bash", str(machine.root / "run/castor/machine")]).wait(20) == 0
    told = wait_for(machine.root / "agent").split()
    assert told == ["node", "--user-data", str(machine.root / "run/castor/user-data")]


def test_the_watch_writes_down_when_the_instance_is_taken_back(machine: Machine) -> None:
    assert machine.start() == 0
    machine.metadata[RECLAIM] = '{"action": "terminate", "time": "2026-11-22T08:02:00Z"}'
    watch = (machine.root / "run/castor/watch").read_text()
    looking = machine.run(["bash", "-c", watch.replace("sleep 5", "sleep 0.05")])
    try:
        assert wait_for(machine.root / "run/castor/reclaim") == "1795334520\n"
    finally:
        looking.kill()
        looking.wait()
