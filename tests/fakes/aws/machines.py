"""Machines under the instances of a fake account: what their user data says, as processes here.

Each instance that the account launches runs its launch template's own user data through bash:
the script that Terraform's module lays down, as it is, but that its files lie in a directory of
the instance, and that the metadata service, `aws s3 cp`, `nvidia-smi`, `systemctl` and `shutdown`
are those of this file. What `systemctl start` would have run is run, and its end is the
instance's, as with instance-initiated shutdown.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

import boto3
import psutil

from tests.fakes.aws.account import Account
from tests.fakes.aws.identity import signer
from tests.fakes.aws.metadata_service import MetadataService
from tests.fakes.aws.proxy import CLOUD_SUFFIX
from tests.fakes.aws.server import FakeAws

REGION: Final = "us-east-1"
_LOOK_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 5.0
_METADATA: Final = "http://169.254.169.254"
_ROOTED: Final = ("/run/castor", "/var/lib/castor", "/etc/systemd/system", "/opt/castor")

_STUBS: Final = {
    # `aws s3 cp ... s3://BUCKET/KEY FILE`, from the fake account.
    "aws": """#!{python} -P
import boto3, sys
source, target = sys.argv[-2:]
bucket, _, key = source.removeprefix("s3://").partition("/")
boto3.client("s3").download_file(bucket, key, target)
""",
    "castor": """#!/bin/bash
exec {python} -P -m autoscaler.cli.app "$@"
""",
    "nvidia-smi": """#!/bin/bash
for ((device = 0; device < {devices}; device++)); do echo "GPU $device"; done
""",
    # What they were told is kept; nothing here may end the machine that the tests run on.
    "systemctl": """#!/bin/bash
echo "systemctl $*" >> {root}/told
""",
    "shutdown": """#!/bin/bash
echo "shutdown $*" >> {root}/told
""",
}


class Teller(Enum):
    """Who tells of a reclaim: the instance's metadata service, or a rule of EventBridge."""

    METADATA = "metadata"
    EVENTS = "events"


@dataclass
class Machine:
    """One instance's: its start, then the agent's unit, with the watch beside it."""

    root: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def boot(self, user_data: str) -> None:
        script = self.root / "user-data.sh"
        script.write_text(user_data)
        self._start(["/bin/bash", str(script)])

    def has_booted(self) -> bool:
        """Its start has ended well: the unit is to run."""
        return self.told().count("systemctl start castor-node.service") == 1

    def told(self) -> list[str]:
        told = self.root / "told"
        return told.read_text().splitlines() if told.exists() else []

    def run_unit(self) -> None:
        run = self.root / "run" / "castor"
        pairs = (line.partition("=") for line in (run / "environment").read_text().splitlines())
        self.environment |= {name: value for name, _, value in pairs}
        self._start(["/bin/bash", str(run / "watch")])
        self._start(["/bin/bash", str(run / "machine")])

    @property
    def is_running(self) -> bool:
        """Its last process, which is its start or its unit, has not ended."""
        return self.processes[-1].poll() is None

    def end(self) -> None:
        """As a power cut after a short grace: nothing of it runs on."""
        alive = self._alive()
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(alive, _GRACE_SECONDS)
        for process in {*alive, *self._alive()}:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for each in self.processes:
            each.wait()

    def _alive(self) -> list[psutil.Process]:
        """All that finds its programs here first, whoever its parent is by now."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("PATH", "").find(str(self.root)) >= 0:
                    found.append(process)
        return found

    def _start(self, command: list[str]) -> None:
        with (self.root / "console.log").open("ab") as console:
            self.processes.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    cwd=self.root,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=console,
                    start_new_session=True,
                )
            )


class Machines:
    """The machines of all instances of one account, from its making until `close`."""

    def __init__(self, fake: FakeAws, key: str, directory: Path, devices: int = 1) -> None:
        self._fake = fake
        self._key = key
        self._directory = directory
        self._devices = devices
        self._cloud = boto3.session.Session(key + CLOUD_SUFFIX, "secret", region_name=REGION)
        self._ec2 = self._client("ec2")
        self._metadata = MetadataService()
        self._reclaims: dict[str, float] = {}
        self._stopped = threading.Event()
        self.machines: dict[str, Machine] = {}
        self.signer = signer(REGION)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def account(self) -> Account:
        return self._fake.proxy.account(self._key)

    def reclaim(self, instance_id: str, notice_seconds: float, told_by: Teller) -> None:
        """The cloud takes a spot instance back, and says so in one of the ways that it has."""
        self._reclaims[instance_id] = time.time() + notice_seconds
        if told_by is Teller.METADATA:
            self._metadata.announce_end(instance_id, self._reclaims[instance_id])
            return
        event = {
            "Source": "aws.ec2",
            "DetailType": "EC2 Spot Instance Interruption Warning",
            "Detail": json.dumps({"instance-id": instance_id, "instance-action": "terminate"}),
        }
        self._client("events").put_events(Entries=[event])

    def console(self) -> str:
        """What all of them printed, for whoever looks for the reason of a failure."""
        logs = sorted(self._directory.glob("*/console.log"))
        return "\n".join(f"--- {log.parent.name}\n{log.read_text()[-3000:]}" for log in logs)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for machine in self.machines.values():
            machine.end()
        self._metadata.close()

    def _client(self, service: str) -> Any:
        return self._cloud.client(service, endpoint_url=self._fake.url)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            alive = set(self.account.alive())
            for instance_id in alive - self.machines.keys():
                if not self.account.is_pending(instance_id):
                    self.machines[instance_id] = self._power_on(instance_id)
            for instance_id, machine in list(self.machines.items()):
                self._look_after(instance_id, machine, instance_id in alive)

    def _look_after(self, instance_id: str, machine: Machine, is_alive: bool) -> None:
        if not is_alive:
            if machine.is_running:
                machine.end()
        elif self._reclaims.get(instance_id, time.time() + 1) <= time.time():
            self.account.reclaimed.add(instance_id)
            self._terminate(instance_id)
        elif not machine.is_running:
            if machine.has_booted() and len(machine.processes) == 1:
                machine.run_unit()
            else:  # its start failed, or its agent has ended
                self._terminate(instance_id)

    def _terminate(self, instance_id: str) -> None:
        self._ec2.terminate_instances(InstanceIds=[instance_id])

    def _power_on(self, instance_id: str) -> Machine:
        (told,) = self._ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
        (instance,) = told["Instances"]
        tags = {f"meta-data/tags/instance/{one['Key']}": one["Value"] for one in instance["Tags"]}
        own = {"meta-data/instance-id": instance_id, "meta-data/local-ipv4": "127.0.0.1"}
        proof = self.signer.proof(
            instance_id, instance["LaunchTime"].timestamp(), accountId=self.account.number
        )
        signed = {"dynamic/instance-identity/rsa2048": proof}
        self._metadata.tell(instance_id, {**own, **tags, **signed})
        root = self._directory / instance_id
        machine = Machine(root, self._environment(root))
        self._lay_out(root)
        machine.boot(self._rooted(self._user_data(instance_id), instance_id, root))
        return machine

    def _user_data(self, instance_id: str) -> str:
        told = self._ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        return base64.b64decode(told["UserData"]["Value"]).decode()

    def _rooted(self, user_data: str, instance_id: str, root: Path) -> str:
        """The script with its files below `root`, and Castor in the image already."""
        text = user_data.replace("has_wheels='true'", "has_wheels='false'")
        text = text.replace(_METADATA, self._metadata.url(instance_id))
        for path in _ROOTED:
            text = text.replace(path, f"{root}{path}")
        return text

    def _lay_out(self, root: Path) -> None:
        told = {"python": sys.executable, "devices": self._devices, "root": shlex.quote(str(root))}
        for place in ("stubs", "opt/castor/bin", "etc/systemd/system"):
            (root / place).mkdir(parents=True)
        for name, text in _STUBS.items():
            place = "opt/castor/bin" if name == "castor" else "stubs"
            stub = root / place / name
            stub.write_text(text.format(**told))
            stub.chmod(0o755)

    def _environment(self, root: Path) -> dict[str, str]:
        """A machine knows nothing of whoever launched it; the role of an instance is in keys."""
        return {
            "PATH": f"{root / 'stubs'}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "HOME": str(root),
            "AWS_ENDPOINT_URL": self._fake.url,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": "secret",
            "OMP_NUM_THREADS": "1",
            "RUST_LOG": "error",
        }
