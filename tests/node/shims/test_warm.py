"""Workers forked from a warm process: a real shim, `hpo.worker.warm` and a script of the test."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autoscaler.domain.errors import Conflict
from autoscaler.domain.trial import IMPORTS_VARIABLE, WORKER_COMMAND
from autoscaler.node.shims.process import Process
from autoscaler.node.shims.shim import ShimOrder
from tests.node.site import wait_until

WORKER = """
import os, random, subprocess, sys, time
from hpo.worker.warm import wait_for_order, note_imports, run_and_leave

def main():
    wait_for_order()
    word = os.environ["CASTOR_JOB"]
    print(word, os.path.basename(os.getcwd()), os.environ["SECRET"], flush=True)
    print("drew", random.random(), "has", "cloudpickle" in sys.modules, flush=True)
    if word == "fails":
        raise ValueError("it is what it is")
    if word == "stays":
        subprocess.Popen(["sleep", "60"])
        time.sleep(60)
    import cloudpickle
    note_imports()

run_and_leave(main)
"""


class Trials:
    """One trial after the other in a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log"
        programs = path / "bin"
        programs.mkdir()
        (path / "worker.py").write_text(WORKER)
        (programs / "python").write_text(f"#!/bin/sh\nexec {sys.executable} {path}/worker.py\n")
        (programs / "python").chmod(0o755)
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            IMPORTS_VARIABLE: str(path / "imports"),
            "SECRET": "hush",
        }
        self.ends = threading.Semaphore(0)
        self.process = self.another()

    def another(self) -> Process:
        """The same as another agent finds it."""
        process = Process(self.path / "record", self.log, dict(os.environ))
        process.on_end = self.ends.release  # type: ignore[assignment]
        return process

    def start(self, job: str, **environment: str) -> None:
        directory = self.path / job
        directory.mkdir(exist_ok=True)
        variables = {**self.environment, "CASTOR_JOB": job, "USER": job, **environment}
        self.process.start(ShimOrder(WORKER_COMMAND, str(directory), variables, secrets=("hush",)))

    def run(self, job: str, **environment: str) -> int | None:
        self.start(job, **environment)
        wait_until(lambda: not self.process.is_alive, f"the end of {job}")
        return self.process.exit_code

    @property
    def shim(self) -> psutil.Process:
        """The one of the last trial."""
        return psutil.Process(int((self.path / "record").read_text().split()[0]))

    def begin_to_stay(self) -> psutil.Process:
        """Start a trial that does not end; returns what it has started in its turn."""
        self.start("stays")

        def sleeps() -> list[psutil.Process]:
            record = self.path / "record"
            try:
                below = self.shim.children(recursive=True) if record.read_text() else []
                return [each for each in below if each.name() == "sleep"]
            except (psutil.NoSuchProcess, FileNotFoundError):  # it ended while it was looked at
                return []

        (found,) = wait_until(sleeps, "its child")
        return found


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Trials]:
    trials = Trials(tmp_path)
    yield trials
    trials.process.kill()


def test_trials_are_forked_from_one_process_and_are_as_if_started_anew(trials: Trials) -> None:
    assert trials.run("first") == 0
    shim = trials.shim
    assert trials.ends.acquire(timeout=60)

    def has_it_before() -> bool:
        trials.log.unlink()
        assert trials.run("next") == 0
        return trials.log.read_text().endswith("has True\n")

    drew = trials.log.read_text().split()[-3]
    wait_until(has_it_before, "the import that the first one has noted")
    assert trials.shim == shim
    first, second = trials.log.read_text().splitlines()
    assert first == "next next ***"
    assert drew not in second


def test_one_that_fails_is_told_apart_and_others_follow(trials: Trials) -> None:
    assert trials.run("fails") == 1
    assert "ValueError: it is what it is" in trials.log.read_text()
    shim = trials.shim
    assert trials.run("next") == 0
    assert trials.shim == shim


def test_what_was_started_with_another_environment_has_another_process(trials: Trials) -> None:
    assert trials.run("first") == 0
    shim = trials.shim
    assert trials.run("next", OMP_NUM_THREADS="2") == 0
    assert trials.shim != shim
    wait_until(lambda: not shim.is_running(), "the end of the first shim")


def test_a_trial_is_found_again_stopped_with_all_it_has_started_and_followed(
    trials: Trials,
) -> None:
    sleeping = trials.begin_to_stay()
    found = trials.another()
    assert found.is_alive
    with pytest.raises(Conflict):
        trials.start("next")
    found.stop()
    wait_until(lambda: not found.is_alive, "its end")
    assert found.exit_code == -signal.SIGTERM
    assert not sleeping.is_running()
    shim = trials.shim
    assert trials.run("next") == 0
    assert trials.shim == shim


def test_a_trial_outlives_its_agent_and_nothing_outlives_both(trials: Trials) -> None:
    trials.begin_to_stay()
    shim = trials.shim
    assert trials.process._warm is not None
    trials.process._warm.end()
    found = trials.another()
    assert found.is_alive
    found.kill()
    wait_until(lambda: not found.is_alive, "the end of the trial")
    assert found.exit_code == -signal.SIGKILL
    wait_until(lambda: not shim.is_running(), "the end of the rest")


def test_a_worker_that_is_not_there_is_told(trials: Trials) -> None:
    (trials.path / "bin" / "python").unlink()
    trials.environment["PATH"] = str(trials.path / "bin")
    assert trials.run("first") == 127
    assert trials.log.read_text() == "castor: python: not found\n"
