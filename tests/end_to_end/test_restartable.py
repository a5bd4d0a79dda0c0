"""An untouched DDP script as a restartable job: it grows, loses an instance, shrinks and ends."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import yaml

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.wire.messages import InstanceView, JobView
from tests.builders.waiting import wait_until
from tests.end_to_end.deployment import Deployment

ROOT: Final = Path(__file__).parents[2]
EXAMPLE: Final = ROOT / "examples" / "restartable"
WAIT_SECONDS: Final = 240.0
STEPS: Final = 1500
SAVE_EVERY: Final = 100
UNCOUNTED: Final = 100  # steps in 5 s: a checkpoint counts once it was unchanged and is copied
TOLERANCE: Final = 1e-4
_START: Final = re.compile(r"start at step (\d+): world of (\d+)")
_STEP: Final = re.compile(r"step (\d+) of")
_LOSS: Final = re.compile(r"final loss ([\d.]+)")


@dataclass(frozen=True)
class Restart:
    """One start of the script, and the last step that it printed; both as in its log."""

    step: int
    world: int
    last_step: int


class Training:
    """The job of the example, and its processes."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self._deployment = deployment
        self._client = deployment.client()
        self._name = name

    def job(self) -> JobView:
        return self._client.job(self._name)

    def set(self, instances: int) -> None:
        self._deployment.castor("set", self._name, f"min={instances}", f"max={instances}")

    def worlds(self) -> list[int]:
        """Return the sizes of the worlds so far, as all instances printed them."""
        return [restart.world for restart in self.restarts()]

    def restarts(self) -> list[Restart]:
        logs = (self._deployment.state / "logs").rglob("*")
        restarts = [part for log in logs if log.is_file() for part in restarts_in(log)]
        return sorted(restarts, key=lambda restart: (restart.step, restart.last_step))

    def text(self) -> str:
        logs = (self._deployment.state / "logs").rglob("*")
        return "\n".join(log.read_text(errors="replace") for log in logs if log.is_file())

    def alive(self) -> list[InstanceView]:
        return [held for held in self.job().instances if held.phase is not InstancePhase.ENDED]

    def wait_until_world(self, count: int, without: str | None = None) -> list[InstanceView]:
        """Wait until exactly `count` instances are left, and a world of them makes progress."""

        def training() -> list[InstanceView]:
            alive = self.alive()
            are_training = all(held.phase is InstancePhase.TRAINING for held in alive)
            report = self.job().report
            is_size = report is not None and report.replicas == count == len(alive)
            is_without = without not in {held.id for held in alive}
            return alive if are_training and is_size and is_without else []

        return self.wait_for(training, f"a world of {count} instances")  # type: ignore[no-any-return]

    def wait_for(self, condition: Callable[[], Any], description: str) -> Any:
        def checked() -> Any:
            job = self.job()
            assert job.phase is not JobPhase.FAILED, job.cause
            return condition()

        try:
            return wait_until(checked, seconds=WAIT_SECONDS, description=description)
        except AssertionError as error:
            logs = self._deployment.castor("logs", self._name)[-4000:]
            raise AssertionError(f"{error}\n{self.job()}\n{logs}") from None


def restarts_in(log: Path) -> list[Restart]:
    restarts: list[Restart] = []
    for line in log.read_text(errors="replace").splitlines():
        if started := _START.search(line):
            step = int(started[1])
            restarts.append(Restart(step, int(started[2]), step))
        elif (stepped := _STEP.search(line)) and restarts:
            last = restarts.pop()
            restarts.append(Restart(last.step, last.world, int(stepped[1])))
    return restarts


def kill(instance: InstanceView) -> None:
    """Kill an instance with all its processes, at once."""
    assert instance.cloud_id is not None
    (machine,) = [
        process
        for process in psutil.process_iter(["cmdline"])
        if "providers.local.machine" in (process.info["cmdline"] or [])
        and any(word.endswith(instance.cloud_id) for word in process.info["cmdline"])
    ]
    for process in [machine, *machine.children(recursive=True)]:
        process.kill()


def job_file(directory: Path) -> Path:
    """Copy the example, and return its job file: one instance, and slow steps."""
    target = directory / "restartable"
    shutil.copytree(EXAMPLE, target, ignore=shutil.ignore_patterns("__pycache__"))
    document = yaml.safe_load((target / "job.yaml").read_text())
    options = f"--steps {STEPS} --save-every {SAVE_EVERY} --pause 0.05"
    document["command"] = f"python train.py {options}"
    document["instances"] |= {"min": 1, "max": 1}
    document["objective"] = "fastest"
    document["total_progress"] = STEPS * document["batch"]["initial"]
    (target / "job.yaml").write_text(yaml.safe_dump(document))
    return target / "job.yaml"


def undisturbed_loss(directory: Path) -> float:
    """Return the final loss of the same script alone."""
    shutil.copy(EXAMPLE / "train.py", directory)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1"]
    options = ["train.py", "--steps", str(STEPS), "--save-every", str(SAVE_EVERY)]
    done = subprocess.run(
        [*torchrun, *options],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    loss = _LOSS.search(done.stdout)
    assert loss is not None
    return float(loss[1])


@pytest.mark.timeout(1200)
def test_a_script_without_a_session_is_resized_by_restarts(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    with Deployment(tmp_path, {}).running() as deployment:
        deployment.castor("submit", job_file(tmp_path))
        training = Training(deployment, "restartable")
        training.wait_until_world(1)
        training.set(2)
        instances = training.wait_until_world(2)
        kill(instances[0])
        training.wait_until_world(2, without=instances[0].id)
        training.set(1)
        training.wait_until_world(1)
        training.wait_for(lambda: training.job().phase.is_final, "the end of the job")
        job, restarts, text = training.job(), training.restarts(), training.text()
    assert job.phase is JobPhase.FINISHED, job.cause
    assert job.attempt == 1, "lost instances and restarts cost no retry"
    assert training_sizes(restarts) == {1, 2}
    for before, after in pairwise(restarts):
        repeated = before.last_step - after.step
        assert repeated <= SAVE_EVERY + UNCOUNTED, "at most one interval is repeated"
    losses = _LOSS.findall(text)
    assert len(losses) == 1
    assert float(losses[0]) == pytest.approx(undisturbed_loss(tmp_path / "alone"), abs=TOLERANCE)


def training_sizes(restarts: list[Restart]) -> set[int]:
    return {restart.world for restart in restarts}
