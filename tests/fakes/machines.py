"""Machines under the instances of a fake cloud: what their start says, as processes here.

Each instance that the cloud runs runs its template's own start script through bash: the one that
Terraform's module of the cloud lays down, as it is, but that its files lie in a directory of the
instance, and that the cloud's addresses, `nvidia-smi`, `systemctl` and `shutdown` are stand-ins.
What `systemctl start` would have run is run, as the unit says, and its end is the instance's.
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

_LOOK_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 5.0
_UNITS: Final = "etc/systemd/system"
# What scripts write to, or look at, of a machine.
_ROOTED: Final = (
    *("/run/castor", "/var/lib/castor", "/etc/systemd/system", "/etc/resolv.conf"),
    *("/opt/castor", "/dev/disk"),
)

_STUBS: Final = {
    "nvidia-smi": """#!/bin/bash
for ((device = 0; device < {devices}; device++)); do echo "GPU $device"; done
""",
    # What they were told is kept; nothing here may end the machine that the tests run on.
    "systemctl": """#!/bin/bash
echo "systemctl $*" >> {root}/told
""",
    "nft": """#!/bin/bash
""",
    "shutdown": """#!/bin/bash
echo "shutdown $*" >> {root}/told
""",
}
_CASTOR: Final = """#!/bin/bash
exec {python} -P -m autoscaler.cli.app "$@"
"""


class Teller(Enum):
    """Who tells of a reclaim: the instance's metadata service, or what the controller reads."""

    METADATA = "metadata"
    EVENTS = "events"


class Power(Enum):
    """What the cloud gives an instance; GOING is what it gives when it has pressed its button."""

    ON = "on"
    GOING = "going"


@dataclass(frozen=True, slots=True)
class Start:
    """What an instance starts with.

    Attributes:
        script: its template's own.
        stand_ins: what stands here for an address in it.
        environment: what its image, or its account, would give it.
        programs: those of its image beside what each has, by name.
    """

    script: str
    stand_ins: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Machine:
    """One instance's: its start, then the agent's unit, with the watch beside it.

    `was_cut` says that the cloud took its power while it was at work. `is_idle`: it runs after a
    reboot, and nothing of Castor's does.
    """

    root: Path
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    was_cut: bool = False
    is_idle: bool = False
    _leaving: subprocess.Popen[bytes] | None = None
    _was_told: bool | None = None

    def lay_out(self, programs: Mapping[str, str], devices: int) -> None:
        """A disk with these programs, and Castor in the image already."""
        told = {"python": sys.executable, "devices": devices, "root": shlex.quote(str(self.root))}
        for place in ("stubs", "opt/castor/bin", _UNITS):
            (self.root / place).mkdir(parents=True)
        stubs = {f"stubs/{name}": text for name, text in {**_STUBS, **programs}.items()}
        for place, text in {**stubs, "opt/castor/bin/castor": _CASTOR}.items():
            stub = self.root / place
            stub.write_text(text.format(**told))
            stub.chmod(0o755)

    def boot(self, start: Start) -> None:
        text = start.script
        for address, here in start.stand_ins.items():
            text = text.replace(address, here)
        for path in _ROOTED:
            text = text.replace(path, f"{self.root}{path}")
        script = self.root / "start.sh"
        script.write_text(text)
        self.processes.append(self._run(["/bin/bash", str(script)]))

    def has_booted(self) -> bool:
        """Its start has ended well: the unit is to run."""
        return self.told().count("systemctl start castor-node.service") == 1

    def told(self) -> list[str]:
        told = self.root / "told"
        return told.read_text().splitlines() if told.exists() else []

    def run_unit(self) -> None:
        environment = (self.root / "run/castor/environment").read_text()
        pairs = (line.partition("=") for line in environment.splitlines())
        self.environment |= {name: value for name, _, value in pairs}
        for unit in ("castor-watch.service", "castor-node.service"):
            self.processes.append(self._run(self._command(unit, "ExecStart")))

    @property
    def runs_unit(self) -> bool:
        """Or did."""
        return len(self.processes) > 1

    @property
    def is_running(self) -> bool:
        """Its last process, which is its start or its unit, has not ended."""
        return self.processes[-1].poll() is None

    @property
    def was_told(self) -> bool:
        """Whether it has heard of its reclaim, and not by its power button."""
        return self._has_notice if self._was_told is None else self._was_told

    def leave(self) -> None:
        """Its power button is pressed; to be called again and again until it has ended.

        As systemd has it: what the unit says of its stop, and then nothing runs on.
        """
        if self._was_told is None:
            self._was_told = self._has_notice
            stop = self._command("castor-node.service", "ExecStop") if self.runs_unit else []
            if stop and self.is_running:
                self._leaving = self._run(stop, MAINPID=str(self.processes[-1].pid))
        is_leaving = self._leaving is not None and self._leaving.poll() is None
        if self.is_running and not is_leaving:
            self.end()

    def reboot(self) -> None:
        """End all processes, empty /run, and start the units that are enabled for each boot.

        The start script is not run again, as on EC2. A unit may power the machine off.
        """
        self.is_idle = True
        self.end()
        shutil.rmtree(self.root / "run")
        enabled = [
            line.removeprefix("systemctl enable ") for line in self.told() if "enable" in line
        ]
        for unit in enabled:
            condition = self._command(unit, "ConditionPathExists")
            is_met = all(not Path(path.removeprefix("!")).exists() for path in condition)
            if is_met:
                words = self._command(unit, "ExecStart")
                self._run([Path(words[0]).name, *words[1:]]).wait()
        self.is_idle = "systemctl --no-block poweroff" not in self.told()

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
        for each in (*self.processes, *filter(None, [self._leaving])):
            each.wait()

    @property
    def _has_notice(self) -> bool:
        return (self.root / "run/castor/reclaim").exists()

    def _command(self, unit: str, key: str) -> list[str]:
        """What a unit runs then; nothing if it does not say."""
        units = self.root / _UNITS
        found = ""
        for file in (units / unit, *sorted(units.glob(f"{unit}.d/*.conf"))):
            for line in file.read_text().splitlines():
                name, _, value = line.partition("=")
                found = value if name == key else found
        return shlex.split(found)

    def _alive(self) -> list[psutil.Process]:
        """All that finds its programs here first, whoever its parent is by now."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("PATH", "").find(str(self.root)) >= 0:
                    found.append(process)
        return found

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
    """The machines of all instances of one account or project, from their making until `close`.

    Instances go by the ids that Castor's provider gives them.
    """

    def __init__(self, directory: Path, devices: int = 1) -> None:
        self._directory = directory
        self._devices = devices
        self._stopped = threading.Event()
        self.machines: dict[str, Machine] = {}
        self._thread = threading.Thread(target=self._look_after_all, daemon=True)
        self._thread.start()

    @abstractmethod
    def alive(self) -> list[str]:
        """What is paid for and nobody has ended."""

    @abstractmethod
    def remaining(self) -> list[str]:
        """All that there is, what is on its way out included."""

    @property
    @abstractmethod
    def launched(self) -> int:
        """How many there ever were."""

    @abstractmethod
    def reclaim(self, instance_id: str, notice_seconds: float, told_by: Teller) -> None:
        """The cloud takes a spot instance back, and says so in one of the ways that it has."""

    @abstractmethod
    def region_of(self, instance_id: str) -> str:
        """Return the region that an instance is in."""

    @abstractmethod
    def sell_out(self, region: str) -> None:
        """Refuse all launches in a region from now on, for lack of capacity."""

    @abstractmethod
    def forge(self, is_forging: bool) -> None:
        """From now on instances show a forger's word of who they are, or the cloud's again."""

    @abstractmethod
    def _power(self) -> Mapping[str, Power]:
        """What the cloud gives to which instance now; none to those that are not named."""

    @abstractmethod
    def _start_of(self, instance_id: str) -> Start:
        """What it starts with."""

    @abstractmethod
    def _power_off(self, instance_id: str) -> None:
        """The instance itself has ended, and the cloud learns of it."""

    @abstractmethod
    def _pass_time(self) -> None:
        """What the cloud does by itself, it does."""

    def console(self) -> str:
        """What all of them printed, for whoever looks for the reason of a failure."""
        logs = sorted(self._directory.glob("*/console.log"))
        return "\n".join(f"--- {log.parent.name}\n{log.read_text()[-3000:]}" for log in logs)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for machine in self.machines.values():
            machine.end()

    def _look_after_all(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            self._pass_time()
            power = self._power()
            for instance_id, given in power.items():
                if given is Power.ON and instance_id not in self.machines:
                    self.machines[instance_id] = self._power_on(instance_id)
            for instance_id, machine in list(self.machines.items()):
                self._look_after(instance_id, machine, power.get(instance_id))

    def _look_after(self, instance_id: str, machine: Machine, power: Power | None) -> None:
        if power is None:
            if machine.is_running:
                machine.was_cut = True
                machine.end()
        elif power is Power.GOING:
            machine.leave()
        elif not machine.is_running and not machine.is_idle:
            if machine.has_booted() and not machine.runs_unit:
                machine.run_unit()
            else:  # its start failed, or its agent has ended
                machine.end()
                self._power_off(instance_id)

    def _power_on(self, instance_id: str) -> Machine:
        start = self._start_of(instance_id)
        root = self._directory / instance_id.rpartition("/")[2]
        # A machine knows nothing of whoever launched it.
        own = {
            "PATH": f"{root / 'stubs'}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "HOME": str(root),
            "OMP_NUM_THREADS": "1",
            "RUST_LOG": "error",
        }
        machine = Machine(root, {**own, **start.environment})
        machine.lay_out(start.programs, self._devices)
        machine.boot(start)
        return machine
