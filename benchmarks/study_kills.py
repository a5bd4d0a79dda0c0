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
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "examples" / "digits"))

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FixedTrial, FrozenTrial
from study_killer import DriverProcess, Killer, Postgresql

import hpo
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Conflict
from autoscaler.domain.spending import EntryKind
from autoscaler.store.opening import open_store
from autoscaler.supervision import SupervisedController

STUDY = "digits"
# Sums are added in one order, wherever a trial runs.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


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


@contextmanager
def controller_on(state: Path, server: Postgresql, cores: tuple[int, ...]) -> Iterator[Any]:
    """A controller under supervision, which gives everything back at the end."""
    options = ("--boot-seconds", "0", "--store", server.url("castor"))
    controller = SupervisedController(state, cores, SystemClock(), options)
    try:
        with controller.running():
            yield controller
    finally:
        assert controller.terminate_all(), "instances are held when all is over"


def run(options: argparse.Namespace, scratch: Path, server: Postgresql) -> bool:
    """One study; whether all was as it should be."""
    state = scratch / "state"
    state.mkdir()
    cores = tuple(sorted(os.sched_getaffinity(0)))[: options.at_once]
    with controller_on(state, server, cores) as controller:
        driver = DriverProcess(
            [sys.executable, __file__, "--drive", server.url(STUDY), *_same(options)],
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
            if entry.kind is not EntryKind.TRANSFER:
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
        with closing(Postgresql(scratch / "postgresql", ("castor", STUDY))) as server:
            is_right = run(options, scratch, server)
    raise SystemExit(0 if is_right else 1)


if __name__ == "__main__":
    main()
