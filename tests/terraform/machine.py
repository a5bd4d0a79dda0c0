"""Machines of each cloud, as seen by the programs of their start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TextIO

import pytest

from tests.terraform.conftest import GCP_MODULE, MODULE

WHEEL = "castor_autoscaler-1-py3-none-any.whl"
ROLES = ("node", "controller")


@dataclass(frozen=True)
class Cloud:
    """Environment of a start on one cloud.

    `asks` is the header that a request for `metadata` must have. `mounter` is the image's program
    that mounts buckets.
    """

    module: Path
    instance: str
    proof: str
    services: tuple[str, ...]
    mounter: str
    asks: tuple[str, str]
    metadata: Mapping[str, str]
    variables: Mapping[str, str]


EC2 = Cloud(
    module=MODULE,
    instance="i-0123456789abcdef0",
    proof="signed\nby AWS",
    services=("http://169.254.169.254",),
    mounter="mount-s3",
    asks=("X-aws-ec2-metadata-token", "session"),
    metadata={
        "/latest/meta-data/instance-id": "i-0123456789abcdef0",
        "/latest/meta-data/local-ipv4": "10.80.0.7",
        "/latest/meta-data/tags/instance/castor:token": "order-1",
        "/latest/dynamic/instance-identity/rsa2048": "signed\nby AWS",
    },
    variables={
        "region": "us-east-1",
        "has_wheels": "true",
        "pre_bootstrap": "",
        "post_bootstrap": "",
        "parameter": "/castor/test/pools",
        "port": "8470",
        "volume": "vol-0123456789abcdef0",
    },
)
GCE_METADATA = "/computeMetadata/v1/instance/"
_OBJECTS = "/storage/v1/b/castor-test/o/"
GCE = Cloud(
    module=GCP_MODULE,
    instance="castor-test-0a1b",
    proof="signed.by.Google",
    services=("http://169.254.169.254", "https://storage.googleapis.com"),
    mounter="gcsfuse",
    asks=("Metadata-Flavor", "Google"),
    metadata={
        f"{GCE_METADATA}name": "castor-test-0a1b",
        f"{GCE_METADATA}network-interfaces/0/ip": "10.80.0.7",
        f"{GCE_METADATA}service-accounts/default/token": (
            '{"access_token":"leave-1","expires_in":3599,"token_type":"Bearer"}'
        ),
        f"{GCE_METADATA}service-accounts/default/identity?audience=castor-test&format=full": (
            "signed.by.Google"
        ),
        f"{_OBJECTS}user-data%2Fcastor-test-0a1b?alt=media": "parcel\n",
        f"{_OBJECTS}wheels%2F{WHEEL}?alt=media": "wheel",
        **{f"{_OBJECTS}wheels%2Frequirements-{role}.txt?alt=media": "pins" for role in ROLES},
    },
    variables={
        "wheels": " ".join([WHEEL, *(f"requirements-{role}.txt" for role in ROLES)]),
        "audience": "castor-test",
        "pools": "gs://castor-test/pools.json",
        "port": "8470",
    },
)
CLOUDS = {"ec2": EC2, "gce": GCE}
VARIABLES = {
    "bucket": "castor-test",
    "parcels": "user-data",
    "python": "python3",
    "has_index": "true",
    "registries": "",
    "boot_minutes": "20",
    "serve_options": (
        "--fleet-usd 500 --job-usd 50 --study-usd none --lease 45m --policy marginal"
    ),
    "secrets": "",
    "secret_variables": "",
}
CALLED = 'echo "$(basename "$0") $*" >> "$CALLS"\n'
# Stubs; a stub fails if its name and arguments contain FAILING.
PROGRAMS = {
    "shutdown": "",
    "nft": "",
    "systemctl": "",
    "systemd-run": 'while [[ $1 == --* ]]; do shift; done; exec "$@"\n',
    "systemd-escape": "echo var-lib-castor.mount\n",
    "journalctl": "printf 'Error: Failed to create S3 client\\nAccess Denied\\n'\n",
    "blkid": "",
    "mkfs.ext4": "",
    "install": 'exec /usr/bin/install "$@"\n',
    "id": "exit 1\n",
    "useradd": "",
    "chown": "",
    "chgrp": "",
    "mountpoint": '[ -e "${@: -1}" ]\n',
    "mdadm": "",
    "mount": "",
    "nvidia-smi": "echo GPU 0; echo GPU 1\n",
    "aws": (
        'to=${@: -1}; case "$*" in\n'
        '  *wheels*) mkdir -p "$to"; touch "$to/castor_autoscaler-1-py3-none-any.whl"\n'
        '    touch "$to/requirements-node.txt" "$to/requirements-controller.txt" ;;\n'
        "  'ecr get-login-password --region us-east-1') echo leave-1 ;;\n"
        '  *user-data/order-1*) echo parcel > "$to" ;;\n  *) exit 1 ;;\nesac\n'
    ),
    "python3": (
        f'[ "$1" = -c ] && exec {sys.executable} "$@"\n'
        'mkdir -p "$3/bin"; ln -sf "$(command -v pip)" "$3/bin/pip"\n'
    ),
    "pip": "",
}


@dataclass
class Machine:
    """Directory that stands for the whole disk of a machine."""

    cloud: Cloud
    root: Path
    url: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    failing: str = "nothing"
    datasets: Mapping[str, str] = field(default_factory=dict)
    has_mounter: bool = True
    has_nft: bool = True
    removed: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metadata |= self.cloud.metadata

    def place(self, text: str) -> str:
        """Return a program of the module, with paths and addresses of this machine."""
        for service in self.cloud.services:
            text = text.replace(service, self.url)
        text = re.sub(r"(?<![\w.])/(run|var|opt|etc|datasets)/", rf"{self.root}/\1/", text)
        return text.replace("/dev/disk/", f"{self.root}/dev/disk/")

    def start(self, *files: str) -> int:
        """Run a start made of these files; return its exit status.

        The default is the start of an instance.
        """
        programs = self.root / "bin"
        for path in (programs, self.root / "etc/systemd/system", self.root / "run"):
            path.mkdir(parents=True, exist_ok=True)
        mounters = {self.cloud.mounter: ""} if self.has_mounter else {}
        for name, body in {**PROGRAMS, **mounters}.items():
            (programs / name).write_text(
                f'#!/bin/bash\n{CALLED}case "{name} $*" in *"$FAILING"*) exit 9 ;; esac\n{body}'
            )
            (programs / name).chmod(0o755)
        if not self.has_nft:
            (programs / "nft").unlink()
        for name in self.removed:  # missing objects of the bucket
            with (programs / "aws").open("a") as program:
                program.write(f'rm -f "$to/{name}"\n')
        datasets = "\n".join(f"{path} {place}" for path, place in self.datasets.items())
        variables = {**VARIABLES, **self.cloud.variables, **self.variables}
        variables["datasets"] = datasets
        assignments = [f"{name}='{value}'" for name, value in variables.items()]
        names = ("install.sh", *(files or ("first_boot.sh", "datasets.sh", "node.sh", "agent.sh")))
        texts = [(self.cloud.module / "files" / name).read_text() for name in names]
        with (self.root / "console").open("w") as console:
            script = self.root / "start"
            script.write_text(self.place("\n".join([*assignments, *texts])))
            return self.run(["bash", str(script)], console).wait(60)

    def start_host(self) -> int:
        """Return the exit status of the controller's start, as its unit runs it once."""
        assert self.start("retry.sh", "controller.sh") == 0
        return self.run_unit("castor-start.service")

    def run_unit(self, name: str) -> int:
        """Return the exit status of a unit's command."""
        unit = self.unit(name)
        variable, value = unit["Environment"].split("=")
        with (self.root / "console").open("w") as console:
            return self.run(unit["ExecStart"].split(), console, **{variable: value}).wait(60)

    def run(
        self, command: list[str], console: TextIO | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stderr=console,
            env={
                **variables,
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "CALLS": str(self.root / "calls"),
                "FAILING": self.failing,
            },
            text=True,
        )

    @property
    def console(self) -> list[str]:
        """Lines that the last start printed about its failure."""
        return (self.root / "console").read_text().splitlines()

    @property
    def calls(self) -> list[str]:
        return (self.root / "calls").read_text().splitlines()

    def unit(self, name: str = "castor-node.service") -> dict[str, str]:
        text = (self.root / "etc/systemd/system" / name).read_text()
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def serve(machine: Machine) -> ThreadingHTTPServer:
    """Serve the metadata service and the other endpoints that a start uses."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._say(200, "session")

        def do_GET(self) -> None:
            name, value = machine.cloud.asks
            is_object = self.path.startswith("/storage/")
            expected = ("Authorization", "Bearer leave-1") if is_object else (name, value)
            if self.headers.get(expected[0]) != expected[1]:
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
    return server


def started_on(cloud: Cloud, root: Path) -> Iterator[Machine]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    machine = Machine(cloud, root)
    server = serve(machine)
    yield machine
    server.shutdown()
    server.server_close()
