"""Machines of a fake cloud's instances: each instance's start script as local processes.

Each instance runs the start script of its template with bash, unchanged from Terraform's module of
the cloud. The script's paths are replaced by paths in a directory of the instance. The cloud's
addresses, `nvidia-smi`, `systemctl` and `shutdown` are replaced by stubs. A unit that the script
starts with `systemctl` runs as its file says, and its exit ends the instance.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

import psutil

_POLL_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 5.0
_UNITS: Final = "etc/systemd/system"
# Paths that scripts read or write; they are replaced by paths in the machine's directory.
_MACHINE_PATHS: Final = (
    *("/run/castor", "/var/lib/castor", "/etc/systemd/system", "/etc/resolv.conf"),
    *("/opt/castor", "/dev/disk"),
)

_STUBS: Final = {
    "nvidia-smi": """#!/bin/bash
for ((device = 0; device < {devices}; device++)); do echo "GPU $device"; done
""",
    # The stub records its arguments, because the real command would end the tests' own machine.
    "systemctl": """#!/bin/bash
echo "systemctl $*" >> {root}/commands
""",
    "nft": """#!/bin/bash
""",
    "shutdown": """#!/bin/bash
echo "shutdown $*" >> {root}/commands
""",
}
_CASTOR: Final = """#!/bin/bash
exec {python} -P -m autoscaler.cli.app "$@"
"""


class NoticeSource(Enum):
    """Source of a reclaim notice: the instance's metadata, or events to the controller."""

    METADATA = "metadata"
    EVENTS = "events"


class Power(Enum):
    """Power state of an instance; GOING means that the cloud pressed the power button."""

    ON = "on"
    GOING = "going"


@dataclass(frozen=True, slots=True)
class BootConfiguration:
    """BootConfiguration script of an instance and the environment that it runs in.

    Attributes:
        script: the start script of the instance's template.
        stand_ins: local addresses by the cloud's addresses that they replace in the script.
        environment: variables that the image or the account would set.
        programs: programs of the image beside the usual ones, by name.
    """

    script: str
    stand_ins: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Machine:
    """Processes of one instance: the start script, then the agent's unit and its watchdog.

    `was_cut` says whether the cloud cut the power while a process ran. `is_idle` says whether the
    machine runs after a reboot without any process of Castor.
    """

    root: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    was_cut: bool = False
    is_idle: bool = False
    _stop_process: subprocess.Popen[bytes] | None = None
    _had_notice: bool | None = None

    def prepare_disk(self, programs: Mapping[str, str], devices: int) -> None:
        """Create the machine's disk, with stubs, these programs and an installed Castor."""
        values = {
            "python": sys.executable,
            "devices": devices,
            "root": shlex.quote(str(self.root)),
        }
        for folder in ("stubs", "opt/castor/bin", _UNITS):
            (self.root / folder).mkdir(parents=True)
        stubs = {f"stubs/{name}": text for name, text in {**_STUBS, **programs}.items()}
        for path, text in {**stubs, "opt/castor/bin/castor": _CASTOR}.items():
            stub = self.root / path
            stub.write_text(text.format(**values))
            stub.chmod(0o755)

    def boot(self, start: BootConfiguration) -> None:
        text = start.script
        for address, here in start.stand_ins.items():
            text = text.replace(address, here)
        for path in _MACHINE_PATHS:
            text = text.replace(path, f"{self.root}{path}")
        script = self.root / "start.sh"
        script.write_text(text)
        self.processes.append(self._run(["/bin/bash", str(script)]))

    def has_booted(self) -> bool:
        """Return whether the start script has asked systemd to start the agent's unit."""
        return self.commands().count("systemctl start castor-node.service") == 1

    def commands(self) -> list[str]:
        """Return the recorded calls of `systemctl` and `shutdown`, with their arguments."""
        log = self.root / "commands"
        return log.read_text().splitlines() if log.exists() else []

    def run_unit(self) -> None:
        environment = (self.root / "run/castor/environment").read_text()
        pairs = (line.partition("=") for line in environment.splitlines())
        self.environment |= {name: value for name, _, value in pairs}
        for unit in ("castor-watch.service", "castor-node.service"):
            self.processes.append(self._run(self._command(unit, "ExecStart")))

    @property
    def runs_unit(self) -> bool:
        """Whether the agent's unit has been started."""
        return len(self.processes) > 1

    @property
    def is_running(self) -> bool:
        """Whether the last process, the start script or the unit, has not ended."""
        return self.processes[-1].poll() is None

    @property
    def had_notice(self) -> bool:
        """Whether the machine had a reclaim notice before its power button was pressed."""
        return self._has_notice if self._had_notice is None else self._had_notice

    def shut_down(self) -> None:
        """Press the power button; call this repeatedly until the machine has ended.

        The stop command of the unit runs first, as with systemd. All processes end after it.
        """
        if self._had_notice is None:
            self._had_notice = self._has_notice
            stop = self._command("castor-node.service", "ExecStop") if self.runs_unit else []
            if stop and self.is_running:
                self._stop_process = self._run(stop, MAINPID=str(self.processes[-1].pid))
        is_stopping = self._stop_process is not None and self._stop_process.poll() is None
        if self.is_running and not is_stopping:
            self.end()

    def reboot(self) -> None:
        """End all processes, empty /run, and start the units that are enabled for each boot.

        The start script is not run again, as on EC2. A unit may power the machine off.
        """
        self.is_idle = True
        self.end()
        shutil.rmtree(self.root / "run")
        enabled = [
            line.removeprefix("systemctl enable ") for line in self.commands() if "enable" in line
        ]
        for unit in enabled:
            condition = self._command(unit, "ConditionPathExists")
            is_met = all(not Path(path.removeprefix("!")).exists() for path in condition)
            if is_met:
                words = self._command(unit, "ExecStart")
                self._run([Path(words[0]).name, *words[1:]]).wait()
        self.is_idle = "systemctl --no-block poweroff" not in self.commands()

    def end(self) -> None:
        """End all processes, as a power cut after a short grace period."""
        alive = self._alive()
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(alive, _GRACE_SECONDS)
        for process in {*alive, *self._alive()}:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for child in (*self.processes, *filter(None, [self._stop_process])):
            child.wait()

    @property
    def _has_notice(self) -> bool:
        return (self.root / "run/castor/reclaim").exists()

    def _command(self, unit: str, key: str) -> list[str]:
        """Return the command of a key in a unit's files; an empty list without the key."""
        units = self.root / _UNITS
        command = ""
        for file in (units / unit, *sorted(units.glob(f"{unit}.d/*.conf"))):
            for line in file.read_text().splitlines():
                name, _, value = line.partition("=")
                command = value if name == key else command
        return shlex.split(command)

    def _alive(self) -> list[psutil.Process]:
        """Return all processes whose PATH begins in this machine's directory."""
        alive = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("PATH", "").find(str(self.root)) >= 0:
                    alive.append(process)
        return alive

    def _run(self, command: list[str], **variables: str) -> subprocess.Popen[bytes]:
        with (self.root / "console.log").open("ab") as console:
            return subprocess.Popen(
                command,
                env=self.environment | variables,
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )


class Machines(ABC):
    """Machines of all instances of one account or project, from construction until `close`.

    Instances have the ids that Castor's provider gives them.
    """

    def __init__(self, directory: Path, devices: int = 1) -> None:
        self._directory = directory
        self._devices = devices
        self._stopped = threading.Event()
        self.machines: dict[str, Machine] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @abstractmethod
    def alive(self) -> list[str]:
        """Return the billed instances that nobody has asked to end."""

    @abstractmethod
    def remaining(self) -> list[str]:
        """Return all instances that exist, including those that are ending."""

    @property
    @abstractmethod
    def launched(self) -> int:
        """Number of instances launched so far."""

    @abstractmethod
    def reclaim(self, instance_id: str, notice_seconds: float, source: NoticeSource) -> None:
        """Reclaim a spot instance, with a notice from one of the cloud's sources."""

    @abstractmethod
    def region_of(self, instance_id: str) -> str:
        """Return the region that an instance is in."""

    @abstractmethod
    def sell_out(self, region: str) -> None:
        """Refuse all launches in a region from now on, for lack of capacity."""

    @abstractmethod
    def forge(self, is_forging: bool) -> None:
        """Give instances forged proofs of identity from now on, or genuine ones again."""

    @abstractmethod
    def _power(self) -> Mapping[str, Power]:
        """Return the power states of instances; an instance without a state has no power."""

    @abstractmethod
    def _boot_configuration(self, instance_id: str) -> BootConfiguration:
        """Return the start configuration of an instance."""

    @abstractmethod
    def _power_off(self, instance_id: str) -> None:
        """Report to the cloud that an instance has shut itself down."""

    @abstractmethod
    def _pass_time(self) -> None:
        """Do the work that the cloud does by itself as time passes."""

    def console(self) -> str:
        """Return the last output of all machines, for a failed test's message."""
        logs = sorted(self._directory.glob("*/console.log"))
        return "\n".join(f"--- {log.parent.name}\n{log.read_text()[-3000:]}" for log in logs)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for machine in self.machines.values():
            machine.end()

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            self._pass_time()
            power = self._power()
            for instance_id, state in power.items():
                if state is Power.ON and instance_id not in self.machines:
                    self.machines[instance_id] = self._power_on(instance_id)
            for instance_id, machine in list(self.machines.items()):
                self._update(instance_id, machine, power.get(instance_id))

    def _update(self, instance_id: str, machine: Machine, power: Power | None) -> None:
        if power is None:
            if machine.is_running:
                machine.was_cut = True
                machine.end()
        elif power is Power.GOING:
            machine.shut_down()
        elif not machine.is_running and not machine.is_idle:
            if machine.has_booted() and not machine.runs_unit:
                machine.run_unit()
            else:  # the start script failed, or the agent has ended
                machine.end()
                self._power_off(instance_id)

    def _power_on(self, instance_id: str) -> Machine:
        start = self._boot_configuration(instance_id)
        root = self._directory / instance_id.rpartition("/")[2]
        # The machine does not inherit the environment of the tests.
        environment = {
            "PATH": f"{root / 'stubs'}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "HOME": str(root),
            "OMP_NUM_THREADS": "1",
            "RUST_LOG": "error",
        }
        machine = Machine(root, {**environment, **start.environment})
        machine.prepare_disk(start.programs, self._devices)
        machine.boot(start)
        return machine
